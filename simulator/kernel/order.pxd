cimport cython
from simulator.kernel.job cimport ActiveJob
from simulator.kernel.loop cimport Loop

cdef long long BY_ARRIVAL, BY_GPUS, BY_REMAINING, BY_REMAINING_GPUS

@cython.locals(fronts=list, queue=list)
cpdef list fronts_of(Loop loop)

cdef long long keys_fall(long long order)

@cython.locals(job=ActiveJob, running=list, later=list, falling=cython.longlong, kept=cython.longlong, place=cython.longlong)
cpdef list set_apart(Loop loop, ActiveJob first)

@cython.locals(budget=cython.longlong, place=cython.longlong, hole=cython.longlong, job=ActiveJob, above=ActiveJob)
cdef _sort(list jobs)
