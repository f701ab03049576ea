cimport cython

# Numbers of `feature_columns`, as C variables.
cdef long long FREE_SHARE, IS_EMPTY, ABSENT_SHARE, OF_SERVER, LOG_TIME, LOG_TIME_NOW, GPUS, LOG_SPREAD_LOSS
cdef long long LOG_RELATIVE_WAIT, LOG_WAIT, IS_SPREAD, TIME_LOST, LOG_UNTIL_LOCAL, GAIN_OF_STARTING, OUTLASTS
cdef long long OUTLASTS_OTHERS, LOG_UNTIL_CLEAR, GPUS_LEFT, LOG_GPUS, QUEUE_TIMES_LOG_TIME, QUEUE_TIMES_LOG_GPUS
cdef long long BREAKS_EMPTY, BREAKS_ONE_OF_TWO, BREAKS_LARGE, BREAKS_QUEUE, SMALL_LARGE, SMALL_MISSING, SMALL_LARGE_WAIT
cdef long long SMALL_LARGE_QUEUE, BREAKS_MISSING, BREAKS_LARGE_WAIT, BREAKS_LARGE_QUEUE, SHARES_OUTLASTS, LARGE_QUEUE
cdef long long LARGE_MISSING, SIZE_FLAGS

cdef class Features:
    cdef public long long _nodes, _gpus, _candidates, _size, _jobs_at, _first_at, _rest_at, _of_job, _state_jobs
    cdef public long long _job_numbers, _placements, _rest_numbers, _total, _empties, _large, _missing, _server
    cdef public double _never, _shortest, _patience, _queue
    cdef public float[::1] _own
    cdef public double[::1] _hours
    cdef public long long[::1] _free, _absent

    @cython.locals(node=cython.longlong, gpu=cython.longlong, at=cython.longlong, place=cython.longlong, begin=cython.longlong, number=cython.longlong)
    cpdef row(self, float[::1] state, float[::1] row)

    @cython.locals(own="float[::1]", best=double, action=cython.longlong, goes=cython.bint, place=cython.longlong, number=cython.longlong, worth=double)
    cpdef long long action(self, double[::1] rule, float[::1] state, unsigned char[::1] mask)

    @cython.locals(node=cython.longlong)
    cpdef look(self, float[::1] state)

    @cython.locals(begin=cython.longlong, free=cython.longlong, absent=cython.longlong, at=cython.longlong, place=cython.longlong, hour=double, hours="double[::1]")
    cdef _look_at(self, float[::1] state, long long node)

    @cython.locals(place=cython.longlong, begin=cython.longlong, gpus=cython.longlong, longest=double)
    cdef _look_at_queue(self, float[::1] state)

    @cython.locals(share=double)
    cdef long long _asked(self, float[::1] state, long long place)

    @cython.locals(gpus=cython.longlong, width=cython.longlong, begin=cython.longlong, is_whole=cython.bint, ideal=double, apart=double, waited=double, is_small=cython.bint, is_spread=cython.bint, now=double, least=double, size=double, length=double, local=double, flag=cython.longlong)
    cpdef job(self, float[::1] state, long long place, float[::1] row, long long at)

    @cython.locals(width=cython.longlong, clears=double, room=cython.longlong, is_empty=cython.bint, outlasts=double)
    cdef _on_server(self, float[::1] row, long long at, long long gpus, double now)

    @cython.locals(large=double, missing=double)
    cdef _beside_large(self, float[::1] row, long long at, bint is_empty, double outlasts)

    @cython.locals(best=cython.longlong, freest=cython.longlong, node=cython.longlong, free=cython.longlong)
    cdef bint _find(self, long long gpus)

    @cython.locals(soonest=double, node=cython.longlong)
    cdef double _comes_free(self, long long gpus)

    @cython.locals(latest=double, begin=cython.longlong, at=cython.longlong, hour=double)
    cdef double _cleared(self)
