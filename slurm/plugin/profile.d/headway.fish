# headway.sh for fish: it says what this is for. Copy this file into /etc/fish/conf.d.
if status is-interactive; and not set --query SQUEUE_FORMAT; and not set --query SQUEUE_FORMAT2
    set --global --export SQUEUE_FORMAT2 'JobArrayID:.18 ,Partition:.9 ,Name:.8 ,UserName:.8 ,StateCompact:.2 ,TimeUsed:.10 ,NumNodes:.6 ,ReasonList: ,admin_comment:'
end
