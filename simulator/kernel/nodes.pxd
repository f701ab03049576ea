cimport cython

cdef long long ANYWHERE

@cython.final
cdef class NodePool:
    cdef public long long num_nodes, top, words, total, num_sizes
    cdef public long long[::1] capacity, free, up, population, shares, counts, chosen, chosen_gpus, used
    cdef public unsigned long long[::1] levels

    cdef _make_room(self)
    cpdef divide(self, object shares, object counts)
    cpdef share_division(self, NodePool other)
    cpdef set_up(self, long long node, long long up)

    cdef void _flip(self, long long node, long long level) noexcept

    @cython.locals(before=cython.longlong, after=cython.longlong, word=cython.longlong, bit=cython.ulonglong)
    cpdef void take(self, long long node, long long gpus) noexcept

    @cython.locals(found=cython.longlong)
    cpdef long long place(self, long long size, long long gpus, long long rule)

    @cython.locals(found=cython.longlong, part=cython.longlong, missing=cython.longlong, share=cython.longlong)
    cdef long long _best_fit(self, long long size) noexcept

    @cython.locals(level=cython.longlong, base=cython.longlong, word=cython.longlong, bit=cython.longlong, node=cython.longlong)
    cdef long long _choose(self, long long share, long long missing, long long found) noexcept

    @cython.locals(index=cython.longlong, node=cython.longlong)
    cdef void _restore(self, long long found) noexcept

    @cython.locals(found=cython.longlong, level=cython.longlong, base=cython.longlong, word=cython.longlong, bit=cython.longlong, left=cython.ulonglong, share=cython.longlong)
    cdef long long _freest(self, long long gpus) noexcept

    @cython.locals(index=cython.longlong)
    cpdef take_chosen(self, long long found)

    @cython.locals(population="long long[::1]", part=cython.longlong, share=cython.longlong, level=cython.longlong)
    cpdef long long take_counted(self, long long size) noexcept

    @cython.locals(population="long long[::1]", width=cython.longlong, place=cython.longlong, gpus=cython.longlong, missing=cython.longlong, part=cython.longlong, share=cython.longlong, level=cython.longlong, nodes=cython.longlong)
    cdef long long _take_several(self, long long first) noexcept

    @cython.locals(level=cython.longlong)
    cpdef copy_counts(self, NodePool other)

    @cython.locals(node=cython.longlong, word=cython.longlong, level=cython.longlong)
    cpdef copy_from(self, NodePool other)

    @cython.locals(twin=NodePool)
    cpdef NodePool copy(self)

@cython.locals(index=cython.longlong)
cdef long long _lowest_bit(unsigned long long word) noexcept

@cython.locals(one=cython.ulonglong)
cdef unsigned long long _bit(long long place) noexcept
