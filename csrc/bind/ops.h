// What each bind_<op>.cpp uses: registration with the module, and the table behind _C.variants().
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

// Functions that module.cpp calls in order of name; filled before main by SP_BIND.
std::map<std::string, void (*)(py::module_&)>& binders();
struct Binder {
  Binder(const char* name, void (*fn)(py::module_&)) { binders()[name] = fn; }
};
}  // namespace specpilot::bind

// SP_BIND(linear) { m.def(…); }      A new op is bound by its own file; module.cpp does not change.
#define SP_BIND(name)                                                     \
  static void bind_##name(pybind11::module_& m);                          \
  static const specpilot::bind::Binder binder_##name(#name, bind_##name); \
  static void bind_##name(pybind11::module_& m)
