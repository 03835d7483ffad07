#include "bind/ops.h"

PYBIND11_MODULE(_C, m) {
  using namespace specpilot::bind;
  m.doc() = "SpecPilot's engine: kernels over borrowed torch tensors. Use specpilot.ops, which documents each call.";
  py::register_exception<specpilot::Error>(m, "KernelError", PyExc_RuntimeError);
  register_core(m);
  register_formats(m);
  register_accept(m);
  register_argmax(m);
  register_attention(m);
  register_embed(m);
  register_gather_rows(m);
  register_kv_move(m);
  register_linear(m);
  register_rmsnorm(m);
  register_rope_kv(m);
  register_swiglu(m);
}
