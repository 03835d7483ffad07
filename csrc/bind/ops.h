// What each bind_<op>.cpp offers to module.cpp, and the table behind _C.variants().
#pragma once
#include <map>
#include <string>
#include <vector>

#include "bind/tensor_caster.h"
#include "core/variant.h"

namespace specpilot::bind {
namespace py = pybind11;

bool have_gpu();
std::map<std::string, std::vector<VariantInfo>>& variant_tables();

template <class Params>
void add_variants(const char* op, std::span<const Variant<Params>> table) {
  variant_tables()[op] = describe(table, have_gpu());
}

void register_accept(py::module_&);
void register_argmax(py::module_&);
void register_attention(py::module_&);
void register_core(py::module_&);
void register_embed(py::module_&);
void register_formats(py::module_&);
void register_gather_rows(py::module_&);
void register_kv_move(py::module_&);
void register_linear(py::module_&);
void register_rmsnorm(py::module_&);
void register_rope_kv(py::module_&);
void register_swiglu(py::module_&);
}  // namespace specpilot::bind
