cimport cython
from simulator.kernel.job cimport ActiveJob
from simulator.kernel.nodes cimport NodePool

cdef long long NO_JOBS, ALL_JOBS, ON_SEVERAL_NODES
cdef long long NEVER, NOWHERE, WAITING, RUNNING, FINISH, ARRIVAL, INTERRUPT, ROUND, BY_ARRIVAL, BY_GPUS, BY_DURATION, BY_REMAINING, BY_ATTAINED, BY_QUEUES, BY_LEVELS

cdef class Loop:
    cdef public NodePool pool
    cdef public object arrivals, submit, finished, series, spans
    cdef public long long num_jobs, order, threshold, now, arrived, next_arrival, interrupt, timer, checkpoint_period
    cdef public long long track, num_waiting
    cdef public list heap, running, queues, touched

    @cython.locals(when=cython.longlong, happened=cython.longlong, first=ActiveJob)
    cpdef long long next_instant(self)
    @cython.locals(when=cython.longlong, first=ActiveJob)
    cpdef long long peek(self)
    cpdef set_round(self, long long period)
    cpdef note(self)
    @cython.locals(job=ActiveJob)
    cdef _arrive(self)
    cdef _finish(self, ActiveJob job)
    @cython.locals(pool=NodePool, occupied=cython.longlong, place=cython.longlong, nodes=list, counts=list)
    cpdef start(self, ActiveJob job, long long found)
    @cython.locals(occupied=cython.longlong, place=cython.longlong)
    cpdef start_on(self, ActiveJob job, list nodes, list counts)
    cdef _run(self, ActiveJob job, list nodes, list counts, long long occupied)
    cpdef set_speed(self, ActiveJob job, double speed)
    cpdef stop(self, ActiveJob job)
    cpdef charge(self, ActiveJob job, long long cost)
    @cython.locals(lost=cython.longlong)
    cpdef fail(self, ActiveJob job)
    @cython.locals(place=cython.longlong)
    cdef _leave(self, ActiveJob job)
    cdef _touch(self, ActiveJob job)
    @cython.locals(queue=list)
    cdef _enqueue(self, ActiveJob job)
    @cython.locals(low=cython.longlong, high=cython.longlong, middle=cython.longlong)
    cpdef long long first_behind(self, list queue, long long key, long long index)
    @cython.locals(queue=list)
    cpdef dequeue(self, ActiveJob job)
    @cython.locals(order=cython.longlong, remaining=cython.longlong)
    cpdef long long key_of(self, ActiveJob job)
    @cython.locals(queue=list, job=ActiveJob)
    cpdef reorder(self, long long order, long long threshold)
    @cython.locals(last=ActiveJob, place=cython.longlong)
    cdef _out_of_running(self, ActiveJob job)
    cdef _reschedule(self, ActiveJob job)
    @cython.locals(last=ActiveJob, place=cython.longlong)
    cdef _out_of_heap(self, ActiveJob job)
    @cython.locals(place=cython.longlong, above=ActiveJob)
    cdef _rise(self, ActiveJob job)
    @cython.locals(place=cython.longlong, size=cython.longlong, child=cython.longlong, below=ActiveJob)
    cdef _sink(self, ActiveJob job)
    @cython.locals(twin=Loop, job=ActiveJob)
    cpdef Loop fork(self)

cdef bint _before(ActiveJob job, long long key, long long index)
cdef bint _sooner(ActiveJob one, ActiveJob other)

@cython.locals(level=cython.longlong)
cdef long long _service_key(long long order, long long attained, long long threshold)
