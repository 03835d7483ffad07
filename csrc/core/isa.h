// Instruction-set tiers of the CPU backend, lowest first, and what this process may use.
#pragma once
#include <string_view>

namespace specpilot {
enum class Isa : int { kRef = 0, kAvx2 = 1, kAvx512 = 2, kAvx512Vnni = 3, kAmx = 4 };  // kAmx: bf16 and int8 tiles

// The best tier of the machine. AMX needs the kernel's permission for tile state, asked for once here.
Isa machine_isa();
const char* isa_name(Isa isa);  // "cpu_ref", "cpu_avx2", "cpu_avx512", "cpu_avx512_vnni", "cpu_amx"
inline bool machine_has(Isa isa) { return static_cast<int>(isa) <= static_cast<int>(machine_isa()); }

// Cores this process may run on (affinity mask), one per physical core where the topology is known.
int usable_cores();
}  // namespace specpilot
