#include "core/isa.h"

#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <string>
#include <thread>
#if defined(__x86_64__)
#include <sys/syscall.h>
#endif

namespace specpilot {
namespace {
#if defined(__x86_64__)
bool amx_permitted() {
  constexpr long kArchReqXcompPerm = 0x1023, kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}
#endif

Isa detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::kRef;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq"))
    return Isa::kAvx2;
  if (!__builtin_cpu_supports("avx512vnni")) return Isa::kAvx512;
  // GCC 12 spells the AMX features with a dash; they are absent from older libgcc, hence the CPUID leaf itself.
  unsigned a = 7, b = 0, c = 0, d = 0;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  const bool amx_bf16 = d >> 22 & 1, amx_tile = d >> 24 & 1, amx_int8 = d >> 25 & 1;
  return amx_bf16 && amx_tile && amx_int8 && amx_permitted() ? Isa::kAmx : Isa::kAvx512Vnni;
#else
  return Isa::kRef;
#endif
}
}  // namespace

Isa machine_isa() {
  static const Isa isa = detect();
  return isa;
}

const char* isa_name(Isa isa) {
  constexpr const char* kNames[] = {"cpu_ref", "cpu_avx2", "cpu_avx512", "cpu_avx512_vnni", "cpu_amx"};
  return kNames[static_cast<int>(isa)];
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return static_cast<int>(std::thread::hardware_concurrency());
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string base = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    char siblings[64] = "";
    if (std::FILE* file = std::fopen((base + "thread_siblings_list").c_str(), "r")) {
      if (!std::fgets(siblings, sizeof siblings, file)) siblings[0] = '\0';
      std::fclose(file);
    }
    cores.insert(siblings[0] ? std::string(siblings) : std::to_string(cpu));
  }
  return cores.empty() ? 1 : static_cast<int>(cores.size());
}
}  // namespace specpilot
