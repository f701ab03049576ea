"""An attempt to stop a job: its ranks are asked to save, the cycle is ordered to requeue it, or the attempt is called off.
Imports `preempt/reports` and `preempt/text.py`, and what `preempt` imports.
"""
