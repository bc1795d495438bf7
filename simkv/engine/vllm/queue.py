"""The waiting queue and the timers of chained requests.

fcfs is a ring that also takes requests back at its front; priority is a heap over (priority, arrival time, request id)
(vllm/v1/core/sched/request_queue.py, 0.32.0). Order keys are dense ranks computed beforehand, so the heap compares
one integer.
"""

from __future__ import annotations

from simkv.engine.vllm.compiled import inline, kernel


@inline
def earlier(e, a, b):
    return e.reqs[a].queue_rank < e.reqs[b].queue_rank


@kernel
def heap_push(e, c, r):
    heap = e.waiting
    i = c.wait_len
    c.wait_len += 1
    while i > 0:
        parent = (i - 1) // 2
        if not earlier(e, r, heap[parent]):
            break
        heap[i] = heap[parent]
        i = parent
    heap[i] = r


@kernel
def heap_remove_at(e, c, i):
    heap = e.waiting
    c.wait_len -= 1
    r = heap[c.wait_len]
    if i == c.wait_len:
        return
    while i > 0 and earlier(e, r, heap[(i - 1) // 2]):
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    while True:
        child = 2 * i + 1
        if child >= c.wait_len:
            break
        if child + 1 < c.wait_len and earlier(e, heap[child + 1], heap[child]):
            child += 1
        if not earlier(e, heap[child], r):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = r


@inline
def push_back(e, cfg, c, r):
    if cfg.priority:
        heap_push(e, c, r)
    else:
        e.waiting[(c.wait_head + c.wait_len) & (e.waiting.size - 1)] = r
        c.wait_len += 1


@inline
def push_front(e, cfg, c, r):
    if cfg.priority:
        heap_push(e, c, r)
    else:
        c.wait_head = (c.wait_head - 1) & (e.waiting.size - 1)
        e.waiting[c.wait_head] = r
        c.wait_len += 1


@inline
def head(e, cfg, c):
    return e.waiting[0] if cfg.priority else e.waiting[c.wait_head]


@inline
def pop_head(e, cfg, c):
    if cfg.priority:
        heap_remove_at(e, c, 0)
    else:
        c.wait_head = (c.wait_head + 1) & (e.waiting.size - 1)
        c.wait_len -= 1


@kernel
def remove_waiting(e, cfg, c, r):
    """Take a request out of the middle of the queue."""
    if cfg.priority:
        for i in range(c.wait_len):
            if e.waiting[i] == r:
                heap_remove_at(e, c, i)
                return
        return
    mask = e.waiting.size - 1
    i = 0
    while i < c.wait_len and e.waiting[(c.wait_head + i) & mask] != r:
        i += 1
    if i == c.wait_len:
        return
    for k in range(i, c.wait_len - 1):
        e.waiting[(c.wait_head + k) & mask] = e.waiting[(c.wait_head + k + 1) & mask]
    c.wait_len -= 1


@inline
def due_before(e, a, b):
    """Order of two timed requests: time, then position in the workload."""
    return e.reqs[a].arrive < e.reqs[b].arrive or (e.reqs[a].arrive == e.reqs[b].arrive and a < b)


@kernel
def push_timer(e, c, r):
    heap = e.timers
    i = c.timers
    c.timers += 1
    while i > 0 and due_before(e, r, heap[(i - 1) // 2]):
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    heap[i] = r


@kernel
def pop_timer(e, c):
    heap = e.timers
    first = heap[0]
    c.timers -= 1
    r = heap[c.timers]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= c.timers:
            break
        if child + 1 < c.timers and due_before(e, heap[child + 1], heap[child]):
            child += 1
        if not due_before(e, heap[child], r):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = r
    return first


@kernel
def start_successors(e, c, r, now):
    """Requests chained to ``r`` arrive their delay after now (closed loop, next turn of a chat)."""
    following = e.reqs[r].first_after
    while following >= 0:
        e.reqs[following].arrive += now
        push_timer(e, c, following)
        following = e.reqs[following].next_after
