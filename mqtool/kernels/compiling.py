"""Compiles the kernels with numba: to machine code that a file can hold, or for this process alone.

A kernel is a function of numbers and arrays. It allocates nothing and raises nothing, so that its machine code needs
neither numba nor the interpreter when it runs. The kernel is compiled together with a C function of one argument, the
address of a block of int64 in which the kernel's arguments are laid out; `machine_code` fills it, and reads the result
from its beginning.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import binding, ir
from numba import extending, njit, types
from numba.core.compiler_lock import global_compiler_lock
from numba.np.arrayobj import populate_array

from mqtool.kernels.elf import image_of
from mqtool.kernels.machine_code import BYTES_DATA, OBJECT, Image, Layout

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = {"error_model": "numpy", "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
_ENTRY = types.void(types.CPointer(types.int64))
_BUILTIN = types.uint64(types.uint64, types.uint64, types.int64)

intrinsic = cast("Callable[[Any], Callable[..., Any]]", extending.intrinsic)

_kernels: dict[str, tuple[Callable[..., Any], Layout, Layout]] = {}


def compiled(returns: Layout, *takes: Layout) -> Callable[[F], F]:
    """Declares a kernel: a function to be compiled, with the layouts of its result and of its arguments."""

    def declare(function: F) -> F:
        _kernels[function.__name__] = (function, returns, takes)
        return function

    return declare


def inlined(function: F) -> F:
    """Makes a function that kernels call."""
    return cast("F", njit(function, inline="always", _nrt=False))


def called(function: F) -> F:
    """Makes a function that kernels call in many places: it is compiled once, which takes less time than `inlined`."""
    return cast("F", njit(function, **_OPTIONS))


@intrinsic
def array_at(_context: Any, address: Any, lengths: Any, kind: Any) -> Any:
    """Makes an array, C-contiguous, from its address, its lengths and the kind of its items; for compiled code."""
    result = types.Array(kind.dtype, len(lengths), "C")

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        item = ir.Constant(ir.IntType(64), context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        array = context.make_array(result)(context, builder)
        shape = [builder.extract_value(arguments[1], place) for place in range(len(lengths))]
        strides = [item] if len(shape) == 1 else [builder.mul(shape[1], item), item]
        data = builder.inttoptr(arguments[0], context.get_data_type(kind.dtype).as_pointer())
        populate_array(array, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
        return array._getvalue()

    return result(address, lengths, kind), generate


@intrinsic
def word_at(_context: Any, _address: Any) -> Any:
    """Reads the eight bytes at an address, the first one lowest, which need not be aligned; for compiled code."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        load = builder.load(pointer)
        load.align = 1
        return load

    return types.uint64(types.uint64), generate


@intrinsic
def number_at(_context: Any, _address: Any, kind: Any) -> Any:
    """Reads the unsigned number of a kind at an address, its highest byte first; for compiled code."""
    result = kind.dtype

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], context.get_data_type(result).as_pointer())
        load = builder.load(pointer)
        load.align = 1
        return builder.bswap(load)

    return result(types.uint64, kind), generate


@intrinsic
def put_number_at(_context: Any, _address: Any, value: Any, kind: Any) -> Any:
    """Writes the lowest bytes of an integer at an address as an unsigned number of a kind, its highest byte first."""
    integer = ir.IntType(kind.dtype.bitwidth)

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], integer.as_pointer())
        number = arguments[1] if value.bitwidth == integer.width else builder.trunc(arguments[1], integer)
        builder.store(builder.bswap(number), pointer, align=1)

    return types.void(types.uint64, value, kind), generate


@intrinsic
def keep_order(_context: Any) -> Any:
    """Lets no write above be made after one below, as the process may be killed in between; for compiled code."""

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("release")

    return types.void(), generate


@intrinsic
def byte_at(_context: Any, _address: Any) -> Any:
    """Reads the byte at an address as a number of 64 bits; for compiled code."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        load = builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))
        return builder.zext(load, ir.IntType(64))

    return types.uint64(types.uint64), generate


@intrinsic
def lowest_bit(_context: Any, _word: Any) -> Any:
    """Returns the place of the lowest bit that is set, 64 if none is; for compiled code."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def equal_bytes(_context: Any, _address: Any, _byte: Any) -> Any:
    """Returns which of the 64 bytes at an address equal one byte: a bit each, the first lowest; for compiled code."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        block = ir.VectorType(ir.IntType(8), 64)
        first = builder.insert_element(
            ir.Constant(block, ir.Undefined), builder.trunc(arguments[1], ir.IntType(8)), ir.Constant(ir.IntType(32), 0)
        )
        all_of_it = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), 64), None))
        return _bits(builder, builder.icmp_unsigned("==", _block_at(builder, arguments[0]), all_of_it))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def high_bytes(_context: Any, _address: Any) -> Any:
    """Returns which of the 64 bytes at an address are above 0x7F, as `equal_bytes` does; for compiled code."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        block = _block_at(builder, arguments[0])
        return _bits(builder, builder.icmp_signed("<", block, ir.Constant(block.type, None)))

    return types.uint64(types.uint64), generate


def _block_at(builder: Any, address: Any) -> Any:
    load = builder.load(builder.inttoptr(address, ir.VectorType(ir.IntType(8), 64).as_pointer()))
    load.align = 1
    return load


def _bits(builder: Any, lanes: Any) -> Any:
    return builder.bitcast(lanes, ir.IntType(64))


@intrinsic
def prefetch(_context: Any, _address: Any) -> Any:
    """Asks the processor to bring the line at an address into its caches, whether it exists or not."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.globals.get("llvm.prefetch.p0i8")
        function = function or ir.Function(builder.module, kind, "llvm.prefetch.p0i8")
        how = [ir.Constant(number, 0), ir.Constant(number, 3), ir.Constant(number, 1)]  # to read, keep it, data
        return builder.call(function, [builder.inttoptr(arguments[0], pointer), *how])

    return types.void(types.uint64), generate


def external(result: Any, *takes: Any) -> Any:
    """Returns a function for compiled code that calls the C function at the address in its first argument."""
    return _external(None, result, takes)


def external_at(place: int, result: Any, *takes: Any) -> Any:
    """Returns the same, for a first argument that is a tuple of addresses with this one at a place."""
    return _external(place, result, takes)


def _external(place: int | None, result: Any, takes: tuple[Any, ...]) -> Any:
    @intrinsic
    def call(_context: Any, address: Any, *_arguments: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            start = values[0] if place is None else builder.extract_value(values[0], place)
            kinds = [context.get_value_type(kind) for kind in takes]
            pointer = ir.FunctionType(context.get_value_type(result), kinds).as_pointer()
            rest = [builder.extract_value(values[1], number) for number in range(len(takes))]
            return builder.call(builder.inttoptr(start, pointer), rest)

        return result(types.uint64 if place is None else address, types.Tuple(takes)), generate

    return call


def build(cpu: str) -> Image:
    """Compiles all declared kernels for a processor.

    Args:
        cpu: LLVM's name of it; numba must be configured for the same one.
    """
    combined: Any = None
    names = {}
    for name, function in _compiled_kernels():
        library, symbol = function
        module = binding.parse_assembly(str(library._final_module))
        names[symbol] = name
        if combined is None:
            combined = module
        else:
            combined.link_in(module)
    for function in combined.functions:
        if not function.is_declaration and function.name not in names:
            function.linkage = "internal"
    machine = binding.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(
        cpu=cpu, opt=3, reloc="pic", codemodel="small"
    )
    passes = binding.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(combined, binding.create_pass_builder(machine, binding.create_pipeline_tuning_options()))
    code, symbols = image_of(machine.emit_object(combined))
    starts = {name: symbols[symbol] for symbol, name in names.items()}
    return Image(code, {name: (starts[name], *_kernels[name][1:]) for name in starts})


def _compiled_kernels() -> Iterator[tuple[str, tuple[Any, str]]]:
    for name, (function, returns, takes) in _kernels.items():
        if returns == OBJECT:
            entry = njit(_BUILTIN, **_OPTIONS)(_builtin_entry(function, takes))
        else:
            entry = njit(_ENTRY, **_OPTIONS)(_entry(function, returns, takes))
        (result,) = entry.overloads.values()
        symbol = result.fndesc.llvm_func_name
        yield name, _as_builtin(name, result.library, symbol) if returns == OBJECT else (result.library, symbol)


def _as_builtin(name: str, library: Any, symbol: str) -> tuple[Any, str]:
    """Returns a library and a symbol of it: a C function of three numbers that calls a function of numba's."""
    number, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
    module = ir.Module(f"builtin_{name}")
    kinds = [number.as_pointer(), pointer.as_pointer(), *[number] * 3]
    called = ir.Function(module, ir.FunctionType(ir.IntType(32), kinds), symbol)
    function = ir.Function(module, ir.FunctionType(number, [number] * 3), f"builtin_{name}")
    builder = ir.IRBuilder(function.append_basic_block())
    result, error = builder.alloca(number), builder.alloca(pointer)
    builder.call(called, [result, error, *function.args])  # it raises nothing
    builder.ret(builder.load(result))
    joined = library.codegen.create_library(module.name)
    joined.add_ir_module(module)
    joined.add_linking_library(library)
    with global_compiler_lock:
        joined.finalize()
    return joined, function.name


def _builtin_entry(function: Callable[..., Any], takes: Layout) -> Callable[..., Any]:
    """Returns the function that the interpreter calls with `self`, the arguments and their number.

    `self` is a bytes object with the addresses of C functions and the fixed arguments of the kernel; the kernel gets
    these, and then the arguments of the call as an array of object addresses.
    """
    source = _Source()
    arguments = source.tuple_of(takes)
    lines = [
        "def entry(me, arguments, count):",
        f"    a = array_at(me + {BYTES_DATA}, ({source.used},), np.int64)",
        f"    return kernel(*{arguments}, array_at(arguments, (count,), np.uint64))",
    ]
    scope = {"np": np, "array_at": array_at, "kernel": njit(function, **_OPTIONS)}
    exec("\n".join(lines), scope)  # noqa: S102 - as `_entry`
    return cast("Callable[..., Any]", scope["entry"])


def _entry(function: Callable[..., Any], returns: Layout, takes: Layout) -> Callable[..., Any]:
    """Returns the function that takes the arguments of a kernel from a block and puts its result there."""
    source = _Source()
    arguments = source.tuple_of(takes)
    lines = ["def entry(a):", f"    result = kernel(*{arguments})"]
    results = (returns,) if isinstance(returns, str) else returns
    for place, kind in enumerate(results):
        if kind != "none":
            lines.append(f"    a[{place}] = result" + ("" if isinstance(returns, str) else f"[{place}]"))
    scope = {"np": np, "array_at": array_at, "kernel": njit(function, **_OPTIONS)}
    exec("\n".join(lines), scope)  # noqa: S102 - numba compiles functions, and each kernel has its own arguments
    return cast("Callable[..., Any]", scope["entry"])


class _Source:
    """Python expressions for arguments in a block, and how many of its numbers they take."""

    def __init__(self) -> None:
        self.used = 0

    def _next(self) -> str:
        self.used += 1
        return f"a[{self.used - 1}]"

    def of(self, layout: Layout) -> str:
        """Returns the expression of one argument."""
        if not isinstance(layout, str):
            return self.tuple_of(layout)
        if layout.startswith("@"):
            return f"np.uint64({self._next()})"
        kind, _, dimensions = layout.partition("[")
        if not dimensions:
            return f"np.{kind}({self._next()})" if kind != "bool" else f"({self._next()} != 0)"
        start, lengths = self._next(), [self._next() for _ in dimensions]
        return f"array_at({start}, ({', '.join(lengths)},), np.{kind})"

    def tuple_of(self, layouts: Layout) -> str:
        """Returns the expression of a tuple of arguments."""
        return f"({', '.join(self.of(layout) for layout in layouts)},)"
