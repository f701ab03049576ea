"""SCHED2 (Luan et al., GLOBECOM 2019): environment, baselines, packing, experiment."""
