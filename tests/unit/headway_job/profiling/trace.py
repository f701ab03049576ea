# Last lines of a program of test_ddp.py. Prints in seconds: step, exposed by split(), exposed by a full trace, in progress.
# ruff: noqa
import bisect

from headway_job.profiling import kineto
from headway_job.profiling import intervals as spans
from headway_job.profiling import comm_overlap as split
from headway_job.profiling import window

STEPS = 12
model = torch.nn.Sequential(*[torch.nn.Linear(384, 384) for _ in range(6)])
ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001)
data = torch.randn(64, 384)


def step():
    optimizer.zero_grad()
    ddp(data).pow(2).mean().backward()
    optimizer.step()


for _ in range(5):
    step()
recorder = kineto.Kineto()
recorder._scopes = set()  # records every operator
recorder.start()
queue = window.RunQueueClock()
step_ends = [window.step_end(queue)]
for _ in range(STEPS):
    step()
    step_ends.append(window.step_end(queue))
recorded = recorder.stop()
seen = kineto.read(recorded, lambda: False)
profile = split.split(split.Recording(step_ends, seen.collectives, [], [], seen.data_waits))

events = list(recorded.events())
thread = next(event.start_thread_id() for event in events if event.name().startswith("aten::linear"))
operators = spans.union(
    kineto._when(event)
    for event in events
    if event.start_thread_id() == thread and event.scope() != 7 and not split.kind_on_cpu(event.name())
)
begin, end = step_ends[0].unix_ns, step_ends[-1].unix_ns
under_way = spans.clip(spans.union((one.begin, one.end) for one in seen.collectives), begin, end)
ends = sorted(one.end for one in seen.collectives)
waited_ns = 0
for gap_begin, gap_end in spans.subtract([(begin, end)], operators):
    last = bisect.bisect_right(ends, gap_end) - 1
    if last >= 0 and ends[last] > gap_begin:
        waited_ns += spans.total(spans.clip(under_way, gap_begin, ends[last]))
print(profile["step_s"], profile["comm_exposed_s"], waited_ns / STEPS / 1e9, spans.total(under_way) / STEPS / 1e9)
dist.barrier()
dist.destroy_process_group()
