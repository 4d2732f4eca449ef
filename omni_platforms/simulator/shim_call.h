// How the C++ part speaks to Python: the device type, one call, and conversions.
#pragma once
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <pybind11/pybind11.h>

namespace py = pybind11;
using c10::Device, c10::DeviceIndex, c10::DeviceType, c10::Stream;
using Key = std::pair<int, int64_t>;  // (device, stream id)

template <>  // without the weight of pybind11/stl.h
struct pybind11::detail::type_caster<Key> : tuple_caster<std::pair, int, int64_t> {};

// torch's one place for a device from outside, or the place of XPU in a torch built without it.
#ifdef OMNI_SIMULATE_XPU
#define SIM_TYPE XPU
using HooksBase = at::XPUHooksInterface;
#else
#define SIM_TYPE PrivateUse1
using HooksBase = at::PrivateUse1HooksInterface;
#endif
static constexpr auto kSim = DeviceType::SIM_TYPE;
static constexpr auto kKey = c10::DispatchKey::SIM_TYPE;
static PyObject* driver = nullptr;  // never released: it must outlive every tensor of the device

template <typename R, typename... A>
R call(const char* name, A... args) {
  py::gil_scoped_acquire gil;
  py::error_scope keep;  // memory may be freed while a Python exception is in flight
  if constexpr (std::is_void_v<R>) {
    py::handle(driver).attr(name)(args...);
  } else {
    return py::handle(driver).attr(name)(args...).template cast<R>();
  }
}

// For callers that must not see an exception: destructors, noexcept functions, interpreter exit.
template <typename F>
void quiet(F function) noexcept {
  if (!Py_IsInitialized() || !driver) return;
  try {
    function();
  } catch (py::error_already_set& error) {
    py::gil_scoped_acquire gil;
    error.discard_as_unraisable("omni_platforms.simulator");
  }
}

static int64_t address(const void* pointer) { return reinterpret_cast<int64_t>(pointer); }
static void* pointer(int64_t address) { return reinterpret_cast<void*>(address); }
static Device device(int index) { return Device(kSim, (DeviceIndex)index); }
static Device current() { return device(call<int>("get_device")); }
static DeviceIndex device_count() {
  DeviceIndex count = 0;
  quiet([&] { count = (DeviceIndex)call<int>("device_count"); });
  return count;
}
static Stream stream(Key key) { return Stream(Stream::UNSAFE, device(key.first), key.second); }
static int index_of(const Stream& s) { return s.device_index(); }
static int64_t id_of(const Stream& s) { return s.id(); }
