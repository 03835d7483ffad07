// Measured memory read bandwidth: what the roofline of a decode step stands on.
#pragma once

namespace specpilot {
// Best of `repeats` streaming reads of a buffer by all pool threads, bytes per second.
double measure_read_bandwidth(int mebibytes, int repeats);
}  // namespace specpilot
