"""Models, GPUs and the arithmetic from memory to KV blocks."""

from simkv.hardware.capacity import Capacity, capacity, num_gpu_blocks
from simkv.hardware.gpus import Gpu, find_gpu, gpus
from simkv.hardware.kv_bytes import blocks_for, groups_of, kv_bytes_per_token, longest_request
from simkv.hardware.models import Model, find_model, models
from simkv.hardware.tables import GB, GIB, gb_and_gib

__all__ = [
    "GB",
    "GIB",
    "Capacity",
    "Gpu",
    "Model",
    "blocks_for",
    "capacity",
    "find_gpu",
    "find_model",
    "gb_and_gib",
    "gpus",
    "groups_of",
    "kv_bytes_per_token",
    "longest_request",
    "models",
    "num_gpu_blocks",
]
