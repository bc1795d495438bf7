"""A compiled loop called by its address, so that other compiled code can run many replicas of any engines in one call.

Handing a replica to its loop from Python costs 30 µs: about 45 arrays are unpacked. Here they are unpacked once, into an
*image*: the numbers that numba's calling convention passes (numba/core/callconv.py, 0.61 to 0.68: an array is owner,
parent, items, bytes per item, address, shape and strides; a tuple is its members; a record is its address). A few lines of
machine code per loop read the image and call. It holds as long as the replica keeps these arrays.
"""

from __future__ import annotations

import weakref
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from simkv.jit import config

typeof: Any = numba.typeof
FAILED = -1
"""What a call returns where the loop raised an exception, which only code with index checks can."""
WORD, DOUBLE, FLAG = ir.IntType(64), ir.DoubleType(), ir.IntType(8)
CALL = ir.FunctionType(WORD, [WORD, DOUBLE, FLAG])

_types: dict[Any, tuple[Any, ...]] = {}
_made: dict[tuple[int, Any], tuple[int, Any]] = {}
_interpreted_replicas: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def bind(replica: Any) -> tuple[int, npt.NDArray[np.uint64]]:
    """How to call the replica's loop: address of the code, and the image whose address goes with it.

    Args:
        replica: an engine with ``loop`` (the compiled function), ``state``, ``config`` and ``counters``.
    """
    if config.DISABLE_JIT:
        _interpreted_replicas[id(replica)] = replica
        return 1, np.array([id(replica)], np.uint64)
    given = (replica.state, replica.config, replica.counters)
    # numba looks at every field of every array, 2 ms for a replica; replicas of one engine differ only in what is in them.
    look = _looks(given)
    if look not in _types:
        _types[look] = tuple(typeof(x) for x in given)
    signature = (*_types[look], types.float64, types.boolean)
    words: list[int] = []
    for kind, value in zip(signature[:3], given, strict=True):
        _unpack(kind, value, words)
    key = (id(replica.loop), signature)
    if key not in _made:
        _made[key] = _caller(replica.loop, signature, len(words))
    return _made[key][0], np.array(words, np.uint64)


def _looks(value: Any) -> Any:
    """What decides a value's numba type."""
    if isinstance(value, tuple):
        return type(value), *(_looks(x) for x in value)
    if isinstance(value, np.ndarray):
        return type(value), value.dtype, value.ndim, value.flags.num
    return type(value), getattr(value, "dtype", None)


def _unpack(kind: Any, value: Any, words: list[int]) -> None:
    members: Any = kind
    if isinstance(kind, types.Array):
        words += (0, 0, value.size, value.itemsize, address_of(value), *value.shape, *value.strides)
    elif isinstance(kind, types.BaseTuple):
        for member, part in zip(members, value, strict=True):
            _unpack(member, part, words)
    elif isinstance(kind, types.Record):
        words.append(address_of(np.frombuffer(value, np.uint8)))
    elif isinstance(kind, types.NoneType):
        words.append(0)
    elif isinstance(kind, types.Boolean):
        words.append(int(value))
    else:
        raise TypeError(f"no rule for an argument of type {kind}")


def address_of(array: npt.NDArray[Any]) -> int:
    """Where the array's memory begins."""
    return int(array.ctypes.data)


def _caller(loop: Any, signature: tuple[Any, ...], words: int) -> tuple[int, Any]:
    """Machine code that reads an image and calls the loop; with what keeps it alive."""
    loop.compile(signature)
    compiled = loop.overloads[signature]
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    target: Any = cpu_target.target_context
    function = target.call_conv.get_function_type(compiled.signature.return_type, compiled.signature.args)
    wanted = function.args[2:]
    if len(wanted) != words + 2:
        raise TypeError(f"the loop takes {len(wanted)} numbers, its image has {words} and two come with each call")
    library = target.codegen().create_library("simkv_call")
    module = library.create_ir_module("simkv_call")
    name = f"simkv_call_{address:x}"
    made = ir.Function(module, CALL, name)
    image, until, pause = made.args
    builder = ir.IRBuilder(made.append_basic_block())
    at = builder.inttoptr(image, WORD.as_pointer())
    passed = [_as(builder, builder.load(builder.gep(at, [WORD(k)])), kind) for k, kind in enumerate(wanted[:-2])]
    result, raised = builder.alloca(WORD), builder.alloca(function.args[1].pointee)
    code = builder.inttoptr(WORD(address), function.as_pointer())
    status = builder.call(code, [result, raised, *passed, until, pause])
    good = builder.icmp_signed("==", status, status.type(0))
    builder.ret(builder.select(good, builder.load(result), WORD(FAILED)))
    with global_compiler_lock:
        library.add_ir_module(module)
        library.finalize()
    return int(library.get_pointer_to_function(name)), (library, compiled)


def _as(builder: Any, word: Any, kind: Any) -> Any:
    if isinstance(kind, ir.PointerType):
        return builder.inttoptr(word, kind)
    return word if kind == WORD else builder.trunc(word, kind)


@intrinsic
def _compiled(typingctx: Any, code: Any, image: Any, until: Any, pause: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(builder.inttoptr(args[0], CALL.as_pointer()), [args[1], args[2], builder.zext(args[3], FLAG)])

    return types.int64(types.uint64, types.uint64, types.float64, types.boolean), codegen


def _interpreted(code: int, image: int, until: float, pause: bool) -> int:
    replica = _interpreted_replicas[int(np.frombuffer(_memory(image), np.uint64)[0])]
    return int(replica.loop(replica.state, replica.config, replica.counters, until, pause))


def _memory(address: int) -> Any:
    import ctypes

    return (ctypes.c_char * 8).from_address(int(address))


call_at: Any = _interpreted if config.DISABLE_JIT else _compiled
"""``call_at(code, image, until, pause)``: the loop of a replica that ``bind`` was called for; the image by its address."""
