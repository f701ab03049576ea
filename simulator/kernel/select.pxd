cimport cython
from simulator.kernel.fill cimport fill
from simulator.kernel.job cimport ActiveJob
from simulator.kernel.loop cimport Loop
from simulator.kernel.nodes cimport NodePool
from simulator.kernel.order cimport fronts_of, set_apart

cdef long long ANYWHERE, NEVER, PASSED, CLOSED, MANY

cdef class Selection:
    cdef public long long placement
    cdef public NodePool base, free, former
    cdef public long long[::1] worst, needed, sizes
    cdef public list newcomers, later, fronts
    cdef public long long num_sizes, most_laid_out, laid_out, counted
    cdef public long long[::1] cursors, passed

    cpdef bint gave_up(self)
    @cython.locals(job=ActiveJob, stopped=list)
    cpdef decide(self, Loop loop)
    @cython.locals(queue=list, job=ActiveJob)
    cdef long long _fits_beside_all(self, Loop loop)
    @cython.locals(base=NodePool, share=cython.longlong, size=cython.longlong)
    cdef _begin(self, Loop loop)
    @cython.locals(stopped=list, place=cython.longlong)
    cdef list _walk(self, Loop loop)
    @cython.locals(place=cython.longlong)
    cdef _give_up(self, long long begin, long long end)
    @cython.locals(place=cython.longlong)
    cdef _keep(self, long long begin, long long end)
    @cython.locals(later=list, fronts=list, front=ActiveJob, place=cython.longlong, best=cython.longlong, best_place=cython.longlong, index=cython.longlong)
    cdef long long _first_that_fits(self)
    @cython.locals(found=ActiveJob, only=ActiveJob, following=ActiveJob, end=cython.longlong)
    cdef long long _walk_with_one(self, Loop loop, long long place, list stopped)
    @cython.locals(low=cython.longlong, high=cython.longlong, middle=cython.longlong)
    cdef long long _behind(self, ActiveJob job, long long begin)
    @cython.locals(base=NodePool, place=cython.longlong, found=cython.longlong)
    cdef long long _keep_beside(self, ActiveJob only, long long begin, long long end, list stopped)
    cdef long long _offer_beside_one(self, ActiveJob job)
    @cython.locals(newcomer=ActiveJob, job=ActiveJob, kept=cython.longlong)
    cdef _walk_with_several(self, Loop loop, long long place, list stopped)
    @cython.locals(first=ActiveJob, size=cython.longlong, queue=list, place=cython.longlong)
    cdef ActiveJob _next_newcomer(self, Loop loop)
    @cython.locals(size=cython.longlong)
    cdef _reopen(self, Loop loop, ActiveJob last)
    @cython.locals(free=NodePool, found=cython.longlong)
    cdef _offer_newcomer(self, ActiveJob job)
    @cython.locals(place=cython.longlong, share=cython.longlong, gpus=cython.longlong)
    cdef _need(self, ActiveJob job)
    @cython.locals(base=NodePool, gpus=cython.longlong, free=cython.longlong, slots=cython.longlong)
    cdef bint _has_slots(self)
    @cython.locals(nodes=list, counts=list, place=cython.longlong, node=cython.longlong, share=cython.longlong, rank=cython.longlong, gpus=cython.longlong)
    cdef _settle(self, ActiveJob job, NodePool pool, long long found)
    @cython.locals(occupied=cython.longlong, share=cython.longlong)
    cdef long long _occupied_up(self, ActiveJob job)
    @cython.locals(base=NodePool, free=NodePool, occupied=cython.longlong)
    cdef long long _offer_running(self, ActiveJob job)
    @cython.locals(share=cython.longlong)
    cdef _take(self, NodePool pool, ActiveJob job, long long sign)
    @cython.locals(place=cython.longlong, node=cython.longlong, after=cython.longlong, share=cython.longlong)
    cdef bint _disturbs(self, ActiveJob job)
    @cython.locals(free=NodePool, newcomers=list, newcomer=ActiveJob, former=list, place=cython.longlong, found=cython.longlong)
    cdef long long _lay_out_around(self, ActiveJob job)
    @cython.locals(base=NodePool, free=NodePool, place=cython.longlong)
    cdef long long _count_around(self, ActiveJob job)
    @cython.locals(newcomer=ActiveJob, place=cython.longlong)
    cdef _lay_out_as_before(self, list former)
    @cython.locals(job=ActiveJob, found=cython.longlong)
    cdef _lay_out_at_last(self)
