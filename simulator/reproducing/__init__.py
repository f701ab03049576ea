"""Published experiments, made again: policies and controls on the same workloads, the paper's figures beside ours."""
