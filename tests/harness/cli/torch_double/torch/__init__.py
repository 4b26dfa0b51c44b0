"""What moeperf_experts.py uses of PyTorch, over lists: tests need no gigabytes for that."""

import types

bool = "bool"
int64 = "int64"


class Tensor:
    """One or two axes; dtype is bool, int64 or float32."""

    def __init__(self, values, dtype=int64):
        self.values = values
        self.dtype = dtype

    @property
    def shape(self):
        return (len(self.values), len(self.values[0])) if self.dim() == 2 else (len(self.values),)

    device = types.SimpleNamespace(type="cpu")

    def data_ptr(self):
        return id(self)

    def dim(self):
        return 2 if self.values and isinstance(self.values[0], list) else 1

    def __len__(self):
        return len(self.values)

    def detach(self):
        return self

    def to(self, dtype):
        return Tensor([int(value) for value in self.values], dtype)

    def tolist(self):
        return list(self.values)

    def is_floating_point(self):
        return self.dtype == "float32"

    def flatten(self):
        rows = self.values if self.dim() == 2 else [self.values]
        return Tensor([value for row in rows for value in row], self.dtype)

    def reshape(self, _rows, columns):
        flat = self.flatten().values
        return Tensor([flat[i:i + columns] for i in range(0, len(flat), columns)], self.dtype)

    def sum(self, _axis, dtype):
        return Tensor([sum(map(int, column)) for column in zip(*self.values)], dtype)

    def topk(self, k):
        order = [sorted(range(len(row)), key=lambda i: -row[i])[:k] for row in self.values]
        return types.SimpleNamespace(indices=Tensor(order))

    def __ge__(self, least):
        return Tensor([value >= least for value in self.values], bool)

    def __getitem__(self, mask):
        return Tensor([value for value, kept in zip(self.values, mask.values) if kept], self.dtype)

    def __add__(self, other):
        return Tensor([a + b for a, b in zip(self.values, other.values)], self.dtype)


def bincount(chosen, minlength):
    if min(chosen.values) < 0:
        raise RuntimeError("bincount takes no negative numbers")
    return Tensor([chosen.values.count(i) for i in range(max([minlength - 1, *chosen.values]) + 1)])


class Gate:
    """A module that returns what it is given."""

    def __init__(self):
        self.hooks = []

    def register_forward_hook(self, hook):
        self.hooks.append(hook)
        return types.SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def __call__(self, output):
        for hook in self.hooks:
            hook(self, (), output)


class TorchFunctionMode:
    """Sees the calls of linear() while it is entered."""

    entered = []

    def __enter__(self):
        self.entered.append(self)

    def __exit__(self, *_):
        self.entered.pop()


def linear(rows, columns):
    """What a product is to a mode: a function of that name, and shapes."""
    def product(rows, columns):
        return Tensor([[0] * columns for _ in range(len(rows))])
    product.__name__ = "linear"
    entered = TorchFunctionMode.entered
    return entered[-1].__torch_function__(product, (), (rows, columns)) if entered else product(rows, columns)


class Module:
    """Calls the hooks of all modules around its forward()."""

    before, after = [], []

    def __call__(self, *inputs):
        for hook in self.before:
            hook(self, inputs)
        output = self.forward(*inputs)
        for hook in self.after:
            hook(self, inputs, output)
        return output


class Work:
    """An operation of gloo, 11: an all-to-all."""

    def wait(self):
        return True

    def _get_op_type(self):
        return 11


def _all_reduce(tensor):
    return tensor


overrides = types.SimpleNamespace(TorchFunctionMode=TorchFunctionMode)
nn = types.SimpleNamespace(Module=Module, modules=types.SimpleNamespace(module=types.SimpleNamespace(
    register_module_forward_pre_hook=Module.before.append,
    register_module_forward_hook=lambda hook, always_call: Module.after.append(hook))))
ops = types.SimpleNamespace(
    _c10d_functional=types.SimpleNamespace(all_reduce=_all_reduce, wait_tensor=lambda tensor: tensor),
    _c10d_functional_autograd=types.SimpleNamespace())
backward = -1  # the number of the backward pass that runs; -1: none
_C = types.SimpleNamespace(_current_graph_task_id=lambda: backward)
backend = ""  # of torch.distributed; "": not there
distributed = types.SimpleNamespace(Work=Work, get_backend_config=lambda: backend,
                                    is_available=lambda: backend != "",
                                    is_initialized=lambda: False)
