cimport cython

cdef long long NEVER, NOWHERE, WAITING

cdef class ActiveJob:
    cdef public long long index, submit, gpus, size, work, estimate, fixed, stop_cost
    cdef public long long state, left, saved, overhead, overhead_served, service, attained, wait
    cdef public long long since, start, first_start, finish
    cdef public double speed
    cdef public long long stops, moves, resizes, failures, held, last_held, key
    cdef public list nodes, counts
    cdef public long long heap_place, running_place

    @cython.locals(passed=cython.longlong, served=cython.longlong)
    cpdef settle(self, long long now)

    @cython.locals(needed=double)
    cpdef long long finish_from(self, long long now)

    @cython.locals(left=cython.longlong)
    cpdef long long remaining(self)

    cpdef bint before(self, ActiveJob other)

    @cython.locals(twin=ActiveJob)
    cpdef ActiveJob copy(self)

cdef long long _add(long long attained, long long passed, long long held) noexcept
