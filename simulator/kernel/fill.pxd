cimport cython
from simulator.kernel.job cimport ActiveJob
from simulator.kernel.loop cimport Loop
from simulator.kernel.nodes cimport NodePool

cdef long long NEVER
cdef long long NOT_EVEN_THEN

@cython.locals(first=ActiveJob, size=cython.longlong, queue=list)
cpdef ActiveJob first_waiting(Loop loop, list passed)

@cython.locals(pool=NodePool, job=ActiveJob, found=cython.longlong, passed=list)
cpdef ActiveJob fill(Loop loop, long long placement, long long strict)

cdef class Backfill:
    cdef public long long placement
    cdef public NodePool later

    @cython.locals(head=ActiveJob, later=NodePool, deadline=cython.longlong)
    cpdef decide(self, Loop loop)

    @cython.locals(job=ActiveJob, other=ActiveJob, ends=list, place=cython.longlong, share=cython.longlong)
    cdef long long _reserve(self, Loop loop, NodePool later, ActiveJob head)

    @cython.locals(pool=NodePool, cursors=list, full=list, delaying=list, job=ActiveJob, found=cython.longlong, size=cython.longlong)
    cdef _pass_head(self, Loop loop, NodePool later, ActiveJob head, long long deadline)

    @cython.locals(first=ActiveJob, size=cython.longlong, queue=list, place=cython.longlong)
    cdef ActiveJob _next(self, Loop loop, list cursors, list full, list delaying, long long deadline)

    @cython.locals(nodes=list, counts=list, place=cython.longlong)
    cdef long long _leaves_enough(self, NodePool pool, NodePool later, long long found, ActiveJob head)

@cython.locals(finish=cython.longlong)
cdef long long ends_by(ActiveJob job, long long now, long long deadline)

@cython.locals(remaining=cython.longlong)
cdef long long expected_finish(ActiveJob job, long long now)
