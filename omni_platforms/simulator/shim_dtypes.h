// Which types of numbers the device has: asked for once, and checked at each allocation.
#pragma once
#if __has_include(<c10/core/DeviceCapability.h>)
#include <c10/core/DeviceCapability.h>
#endif
#include <c10/core/ScalarType.h>
#include <torch/csrc/Dtype.h>

#include "shim_call.h"

static uint64_t supported_dtypes = ~uint64_t{0};  // one bit for each c10::ScalarType

static uint64_t bits_of(const py::iterable& dtypes) {
  uint64_t bits = 0;
  for (py::handle dtype : dtypes)
    bits |= uint64_t{1} << (int)reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
  return bits;
}

static void check_dtype(c10::ScalarType dtype) {
  TORCH_CHECK_TYPE(supported_dtypes >> (int)dtype & 1, "this simulated device has no tensors of ",
                   dtype, ": torch.accelerator.get_device_capability() lists the types it has. ",
                   "Use one of them, or simulate() a device that has this one.");
}

#if __has_include(<c10/core/DeviceCapability.h>)
static c10::DeviceCapability capability() {
  c10::DeviceCapability found;  // its bits are in the order of c10::ScalarType
  found.capability_data.capability_bits = supported_dtypes;
  return found;
}
#endif
