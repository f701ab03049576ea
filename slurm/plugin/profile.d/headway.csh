# headway.sh for csh and tcsh: it says what this is for. Copy this file into /etc/csh/login.d (Debian) or /etc/profile.d (Fedora, RHEL, SUSE).
if ($?prompt && ! $?SQUEUE_FORMAT && ! $?SQUEUE_FORMAT2) then
    setenv SQUEUE_FORMAT2 'JobArrayID:.18 ,Partition:.9 ,Name:.8 ,UserName:.8 ,StateCompact:.2 ,TimeUsed:.10 ,NumNodes:.6 ,ReasonList: ,admin_comment:'
endif
