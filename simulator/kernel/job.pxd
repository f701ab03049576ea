cimport cython

cdef long long NEVER, NOWHERE, WAITING

@cython.final
cdef class ActiveJob:
    cdef public long long index, submit, gpus, size, work, estimate, fixed, stop_cost
    cdef public long long state, left, saved, left_before, worked, lost, overhead, overhead_served, service, attained, wait
    cdef public long long since, start, first_start, finish
    cdef public double speed
    cdef public long long stops, moves, resizes, failures, occupied, last_occupied, key
    cdef public list nodes, counts
    cdef public long long heap_place, running_place, only_node

    @cython.locals(passed=cython.longlong, served=cython.longlong)
    cpdef void settle(self, long long now) noexcept

    cpdef run_at(self, double speed)

    @cython.locals(needed=cython.longlong, exact=double)
    cpdef long long finish_from(self, long long now)

    cpdef charge(self, long long cost)

    @cython.locals(left=cython.longlong)
    cpdef long long remaining(self) noexcept

    cpdef bint before(self, ActiveJob other) noexcept

    @cython.locals(twin=ActiveJob)
    cpdef ActiveJob copy(self)

cdef long long _sum(long long time, long long more) noexcept
cdef long long _add(long long attained, long long passed, long long occupied) noexcept
