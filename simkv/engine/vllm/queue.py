"""The waiting queue and the timers of chained requests.

fcfs is a ring that also takes requests back at its front; priority is a heap over (priority, arrival time, request id)
(vllm/v1/core/sched/request_queue.py, 0.32.0).
"""

from __future__ import annotations

import numpy as np

from simkv.engine.vllm.compiled import inline, kernel


@inline
def clock(cfg, c):
    """Seconds; in step mode the number of schedule() calls."""
    return c.now if cfg.virtual else float(c.steps)


@inline
def earlier(reqs, a, b):
    x, y = reqs[a], reqs[b]
    if x.priority != y.priority:
        return x.priority < y.priority
    if x.tie != y.tie:
        return x.tie < y.tie
    return x.name_rank < y.name_rank


@kernel
def heap_push(reqs, queue, c, r):
    i = c.wait_len
    c.wait_len += 1
    while i > 0:
        parent = (i - 1) // 2
        if not earlier(reqs, r, queue[parent].waiting):
            break
        queue[i].waiting = queue[parent].waiting
        i = parent
    queue[i].waiting = r


@kernel
def heap_remove_at(reqs, queue, c, i):
    c.wait_len -= 1
    r = queue[c.wait_len].waiting
    if i == c.wait_len:
        return
    while i > 0 and earlier(reqs, r, queue[(i - 1) // 2].waiting):
        queue[i].waiting = queue[(i - 1) // 2].waiting
        i = (i - 1) // 2
    while True:
        child = 2 * i + 1
        if child >= c.wait_len:
            break
        if child + 1 < c.wait_len and earlier(reqs, queue[child + 1].waiting, queue[child].waiting):
            child += 1
        if not earlier(reqs, queue[child].waiting, r):
            break
        queue[i].waiting = queue[child].waiting
        i = child
    queue[i].waiting = r


@inline
def push_back(reqs, queue, cfg, c, r):
    if cfg.priority:
        heap_push(reqs, queue, c, r)
    else:
        queue[(c.wait_head + c.wait_len) & (queue.size - 1)].waiting = r
        c.wait_len += 1


@inline
def push_front(reqs, queue, cfg, c, r):
    if cfg.priority:
        heap_push(reqs, queue, c, r)
    else:
        c.wait_head = (c.wait_head - 1) & (queue.size - 1)
        queue[c.wait_head].waiting = r
        c.wait_len += 1


@inline
def head(queue, cfg, c):
    return queue[0].waiting if cfg.priority else queue[c.wait_head].waiting


@inline
def pop_head(reqs, queue, cfg, c):
    if cfg.priority:
        heap_remove_at(reqs, queue, c, 0)
    else:
        c.wait_head = (c.wait_head + 1) & (queue.size - 1)
        c.wait_len -= 1


@kernel
def remove_waiting(e, cfg, c, r):
    """Take a request out of the middle of the queue."""
    if cfg.priority:
        for i in range(c.wait_len):
            if e.queue[i].waiting == r:
                heap_remove_at(e.reqs, e.queue, c, i)
                return
        return
    mask = e.queue.size - 1
    i = 0
    while i < c.wait_len and e.queue[(c.wait_head + i) & mask].waiting != r:
        i += 1
    if i == c.wait_len:
        return
    for k in range(i, c.wait_len - 1):
        e.queue[(c.wait_head + k) & mask].waiting = e.queue[(c.wait_head + k + 1) & mask].waiting
    c.wait_len -= 1


@inline
def due_before(reqs, a, b):
    """Order of two timed requests: time, then position in the workload."""
    return reqs[a].arrive < reqs[b].arrive or (reqs[a].arrive == reqs[b].arrive and a < b)


@kernel
def push_timer(reqs, queue, c, r):
    i = c.timers
    c.timers += 1
    while i > 0 and due_before(reqs, r, queue[(i - 1) // 2].timer):
        queue[i].timer = queue[(i - 1) // 2].timer
        i = (i - 1) // 2
    queue[i].timer = r


@kernel
def pop_timer(reqs, queue, c):
    first = queue[0].timer
    c.timers -= 1
    r = queue[c.timers].timer
    i = 0
    while True:
        child = 2 * i + 1
        if child >= c.timers:
            break
        if child + 1 < c.timers and due_before(reqs, queue[child + 1].timer, queue[child].timer):
            child += 1
        if not due_before(reqs, queue[child].timer, r):
            break
        queue[i].timer = queue[child].timer
        i = child
    queue[i].timer = r
    return first


@kernel
def start_successors(reqs, queue, c, r, now):
    """Requests chained to ``r`` arrive their delay after now (closed loop, next turn of a chat)."""
    following = reqs[r].first_after
    while following >= 0:
        reqs[following].arrive += now
        reqs[following].tie += now
        push_timer(reqs, queue, c, following)
        following = reqs[following].next_after


@inline
def next_open(reqs, c):
    """First request of the open-loop list that is still to come; chained ones are timed when their predecessor ends."""
    while c.next_arrival < reqs.size and reqs[c.next_arrival].chained:
        c.next_arrival += 1
    return c.next_arrival if c.next_arrival < reqs.size else -1


@inline
def next_request(reqs, queue, c):
    """The request that arrives next, -1 if none is known."""
    r = next_open(reqs, c)
    if c.timers > 0 and (r < 0 or due_before(reqs, queue[0].timer, r)):
        return queue[0].timer
    return r


@kernel
def next_event(reqs, queue, actions, c):
    """Time of the next arrival or action; infinity if there is none."""
    t = np.inf
    r = next_request(reqs, queue, c)
    if r >= 0:
        t = reqs[r].arrive
    if c.next_action < actions.size:
        t = min(t, actions[c.next_action].at)
    return t
