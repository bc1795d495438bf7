"""A small valid file of every format, for tests of what is around the rows."""

from __future__ import annotations

import json
from typing import Any


def lines(rows: list[Any]) -> bytes:
    return ("\n".join(json.dumps(r) for r in rows) + "\n").encode()


MOONCAKE = [
    {"timestamp": 0, "input_length": 1300, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 0, "input_length": 1024, "output_length": 7, "hash_ids": [0, 3]},
    {"timestamp": 2500, "input_length": 1, "output_length": 1, "hash_ids": [4]},
    {"timestamp": 3000, "input_length": 1400, "output_length": 9, "hash_ids": [0, 1, 5]},
]
BAILIAN = [
    {
        "chat_id": 7,
        "parent_chat_id": -1,
        "timestamp": 0.5,
        "input_length": 40,
        "output_length": 3,
        "type": "text",
        "turn": 1,
        "hash_ids": [1, 2, 3],
    },
    {
        "chat_id": 9,
        "parent_chat_id": -1,
        "timestamp": 1.25,
        "input_length": 32,
        "output_length": 2,
        "type": "file",
        "turn": 1,
        "hash_ids": [1, 8],
    },
    {
        "chat_id": 8,
        "parent_chat_id": 7,
        "timestamp": 2.0,
        "input_length": 70,
        "output_length": 4,
        "type": "text",
        "turn": 2,
        "hash_ids": [1, 2, 4, 5],
    },
    {
        "chat_id": 12,
        "parent_chat_id": 8,
        "timestamp": 3.0,
        "input_length": 16,
        "output_length": 1,
        "type": "text",
        "turn": 3,
        "hash_ids": [1],
    },
]
LMCACHE = [
    {"timestamp": 1_760_000_000_000_000, "session_id": "a", "input": "You are an agent.", "output": "Fine."},
    {"timestamp": 1_760_000_000_500_000, "session_id": "b", "input": "Grüße", "output": ""},
    {"timestamp": 1_760_000_001_000_000, "session_id": "a", "input": "You are an agent.Fine.Go on.", "output": "Done."},
]
OPENAI = [
    {
        "timestamp": "2026-05-01T10:00:00Z",
        "user": "ann",
        "session_id": "s1",
        "body": {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}], "cache_salt": "x"},
        "response": {
            "choices": [{"message": {"role": "assistant", "content": "Hello!"}}],
            "usage": {"prompt_tokens": 20, "completion_tokens": 3},
        },
    },
    {"timestamp": "2026-05-01T10:00:01.5+00:00", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5},
    {"timestamp": 1777629602000, "prompt": [1, 2, 3], "response": {"choices": [{"text": "abc"}]}},
]
CHATS = [
    {"conv": 0, "turns": [["human", 9], ["gpt", 20], ["human", 10], ["gpt", 14]]},
    {"conv": 1, "turns": [["gpt", 5], ["human", 3], ["gpt", 8]]},
]
SESSION = {
    "id": "trace_1",
    "models": ["m"],
    "block_size": 64,
    "hash_id_scope": "local",
    "tool_tokens": 10,
    "system_tokens": 5,
    "totals": {},
    "requests": [
        {
            "t": 0.0,
            "type": "n",
            "model": "m",
            "in": 130,
            "out": 10,
            "hash_ids": [1, 2],
            "api_time": 2.0,
            "think_time": 0.0,
            "stop": "tool_use",
        },
        {
            "t": 14.5,
            "type": "subagent",
            "agent_id": "agent_001",
            "duration_ms": 12000,
            "requests": [
                {"t": 0.0, "type": "n", "in": 100, "out": 4, "hash_ids": [7], "api_time": 3.0, "think_time": 0.0},
                {"t": 5.0, "type": "n", "in": 190, "out": 4, "hash_ids": [7, 8], "api_time": 6.5, "think_time": 2.0},
            ],
        },
        {"t": 20.0, "type": "s", "in": 256, "out": 12, "hash_ids": [1, 2, 3, 4], "api_time": 1.0, "think_time": 18.0},
        {"t": 30.0, "type": "s", "in": 300, "out": 1, "hash_ids": [1, 2, 3, 4], "api_time": 1.0, "think_time": 9.0},
    ],
}
GOLDEN = {
    "name": "small",
    "config": {"num_gpu_blocks": 101, "block_size": 16},
    "time": {"mode": "virtual", "a": 0.01, "b": 0.0, "c": 0.001},
    "requests": [
        {"id": "a", "arrive": 0.5, "prompt": [{"seed": 1, "n": 40}], "output_len": 3},
        {"id": "b", "arrive": 0.0, "prompt": [{"seed": 1, "n": 32}, {"seed": 2, "start": 8, "n": 20}], "output_len": 2, "cache_salt": "s"},
        {"id": "c", "arrive": 1.0, "prompt": [{"history": "a"}, {"seed": 3, "n": 5}], "output_len": 4, "priority": -1},
    ],
    "actions": [{"at": 2.0, "op": "reset_prefix_cache"}, {"at": 1.0, "op": "abort", "id": "c"}],
}
LIVE = {
    "server": {"vllm": "0.32.0", "block_size": 32, "num_gpu_blocks": 257},
    "mode": "sequential",
    "requests": [
        {"i": 0, "prompt": [5, 6, 7], "max_tokens": 4, "tenant": 3},
        {"i": 1, "prompt": [5, 6], "max_tokens": 4, "cache_salt": "z", "tenant": 1},
    ],
    "results": [
        {"i": 0, "sent": 100.0, "done": 100.5, "prompt_tokens": 3, "completion_tokens": 4, "cached_tokens": 0},
        {"i": 1, "sent": 100.6, "done": 100.9, "prompt_tokens": 2, "completion_tokens": 2, "cached_tokens": 0},
    ],
}
RAGPULSE = [
    {
        "timestamp": "82",
        "input_length": 3112,
        "output_length": 192,
        "hash_ids": {
            "sys_prompt": [8302, 14332, 15199],
            "passages_ids": [7398, 7370, 7098, 6967, 7405, 7298],
            "history": [15200],
            "web_search": [],
            "user_input": [26923],
        },
        "session_id": "s",
    },
]
AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"
    b"2023-11-16 18:17:04.0319600,3180,8\r\n2023-11-16 18:17:04.0319601,110,27"
)
BURSTGPT = (
    b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    b"5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,API log\n"
)
SGLANG = {
    "config": {"capacity": 512, "page_size": 16, "schedule_policy": "lpm"},
    "requests": [
        {"rid": "a", "arrive": 0, "prompt": [5, 6, 7, 8], "output": [9, 10], "extra_key": "tenant", "lora_id": "adapter"},
        {"rid": "b", "arrive": 2, "prompt": [5, 6, 7], "output": [9, 2, 11], "max_new_tokens": 9, "cache_salt": "s", "priority": 3},
        {"rid": "c", "arrive": 2, "prompt": [1], "output": [4], "ignore_eos": True},
    ],
}

FILES: dict[str, bytes] = {
    "golden": json.dumps(GOLDEN).encode(),
    "live": json.dumps(LIVE).encode(),
    "mooncake": lines(MOONCAKE),
    "bailian": lines(BAILIAN),
    "ragpulse": lines(RAGPULSE),
    "claude-code": json.dumps(SESSION).encode(),
    "lmcache": lines(LMCACHE),
    "azure": AZURE,
    "burstgpt": BURSTGPT,
    "sharegpt-lengths": lines(CHATS),
    "openai-log": lines(OPENAI),
    "sglang": json.dumps(SGLANG).encode(),
}
