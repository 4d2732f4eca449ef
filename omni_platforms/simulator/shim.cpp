// Forwards every virtual of torch's PrivateUse1 device (device guard, hooks, device and pinned
// allocators) to ONE Python object. No policy lives here: streams, events, scheduling and memory
// are in the Python files beside this one, and `driver.py` has the methods that are called here.
// Virtuals newer than torch 2.9 are declared without `override`: one source for all versions.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "shim_autocast.h"
#include "shim_call.h"
#include "shim_dtypes.h"
#include "shim_graph.h"

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return kSim; }
  Device exchangeDevice(Device d) const override {
    return device(call<int>("exchange_device", (int)d.index()));
  }
  Device getDevice() const override { return current(); }
  void setDevice(Device d) const override { call<void>("set_device", (int)d.index()); }
  void uncheckedSetDevice(Device d) const noexcept override {  // guards put the old one back
    quiet([&] { call<void>("restore_device", (int)d.index()); });
  }
  DeviceIndex deviceCount() const noexcept override { return device_count(); }
#if __has_include(<c10/core/DeviceCapability.h>)  // torch 2.10
  c10::DeviceCapability getDeviceCapability(Device) const { return capability(); }
#endif

  Stream getStream(Device d) const override {
    return stream(call<Key>("get_stream", (int)d.index()));
  }
  Stream getDefaultStream(Device d) const override {
    return stream(call<Key>("get_default_stream", (int)d.index()));
  }
  Stream getStreamFromGlobalPool(Device d, bool high = false) const override {
    return stream(call<Key>("new_stream", (int)d.index(), high ? -1 : 0));
  }
  Stream getNewStream(Device d, int priority = 0) const override {
    return stream(call<Key>("new_stream", (int)d.index(), priority));
  }
  Stream exchangeStream(Stream s) const override {
    return stream(call<Key>("exchange_stream", index_of(s), id_of(s)));
  }
  bool queryStream(const Stream& s) const override {
    return call<bool>("stream_query", index_of(s), id_of(s));
  }
  void synchronizeStream(const Stream& s) const override {
    call<void>("stream_synchronize", index_of(s), id_of(s));
  }
  bool isStreamCapturing(const Stream& s) const {
    return call<bool>("stream_is_capturing", index_of(s), id_of(s));
  }
  void* getStreamNativeHandle(const Stream s) const {
    return pointer(call<int64_t>("stream_native_handle", index_of(s), id_of(s)));
  }
  void synchronizeDevice(const DeviceIndex d) const override {
    call<void>("device_synchronize", (int)d);
  }

  void record(void** event, const Stream& s, const DeviceIndex d,
              const c10::EventFlag flag) const override {
    const bool timing = flag == c10::EventFlag::BACKEND_DEFAULT;
    *event = pointer(
        call<int64_t>("event_record", address(*event), index_of(s), id_of(s), (int)d, timing));
  }
  void block(void* event, const Stream& s) const override {
    call<void>("event_block", address(event), index_of(s), id_of(s));
  }
  bool queryEvent(void* event) const override { return call<bool>("event_query", address(event)); }
  void synchronizeEvent(void* event) const override {
    call<void>("event_synchronize", address(event));
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    if (event) quiet([&] { call<void>("event_destroy", address(event)); });
  }
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    return call<double>("event_elapsed", address(start), address(end));
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& s) const override {
    call<void>("record_stream", address(data.get()), index_of(s), id_of(s));
  }
};

struct DeviceMemory final : c10::DeviceAllocator {
  static void release(void* data) { if (data) quiet([&] { call<void>("free", address(data)); }); }
  c10::DataPtr allocate(size_t nbytes) override {
    const Device where = current();
    void* data =
        nbytes ? pointer(call<int64_t>("malloc", (int64_t)nbytes, (int)where.index())) : nullptr;
    return {data, data, &release, where};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t nbytes) const override {
    call<void>("copy_bytes", address(to), address(from), (int64_t)nbytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override { call<void>("empty_cache"); }
  void recordStream(const c10::DataPtr& data, Stream s) override {
    call<void>("record_stream", address(data.get()), index_of(s), id_of(s));
  }
  void resetAccumulatedStats(DeviceIndex d) override {
    call<void>("reset_accumulated_stats", (int)d);
  }
  void resetPeakStats(DeviceIndex d) override { call<void>("reset_peak_stats", (int)d); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex d) {
    return {(size_t)call<int64_t>("memory_free", (int)d),
            (size_t)call<int64_t>("memory_total", (int)d)};
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex d) override {
    py::gil_scoped_acquire gil;
    py::dict found = py::handle(driver).attr("device_stats")((int)d);
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto fill = [&](auto& statistic, const char* name) {
      py::tuple pools = found[name];
      for (size_t i = 0; i < pools.size(); ++i) {
        py::tuple row = pools[i];
        auto& s = statistic[i];
        int64_t* fields[] = {&s.current, &s.peak, &s.allocated, &s.freed};
        for (size_t k = 0; k < 4; ++k) *fields[k] = row[k].cast<int64_t>();
      }
    };
    fill(stats.allocation, "allocation"), fill(stats.segment, "segment");
    fill(stats.active, "active"), fill(stats.active_bytes, "active_bytes");
    fill(stats.allocated_bytes, "allocated_bytes");
    fill(stats.reserved_bytes, "reserved_bytes");
    fill(stats.requested_bytes, "requested_bytes");
    auto count = [&](int64_t& counter, const char* name) { counter = found[name].cast<int64_t>(); };
    count(stats.num_alloc_retries, "num_alloc_retries"), count(stats.num_ooms, "num_ooms");
    count(stats.num_sync_all_streams, "num_sync_all_streams");
    count(stats.num_device_alloc, "num_device_alloc");
    count(stats.num_device_free, "num_device_free");
    return stats;
  }
};

struct PinnedMemory final : at::HostAllocator {
  static void release(void* data) {
    if (data) quiet([&] { call<void>("host_free", address(data)); });
  }
  c10::DataPtr allocate(size_t nbytes) override {
    void* data = nbytes ? pointer(call<int64_t>("host_malloc", (int64_t)nbytes)) : nullptr;
    return {data, data, &release, Device(DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t nbytes) const override {
    memcpy(to, from, nbytes);
  }
  bool record_event(void* data, void*, Stream s) override {
    return call<bool>("host_record_stream", address(data), index_of(s), id_of(s));
  }
  void empty_cache() override { call<void>("host_empty_cache"); }
  at::HostStats get_stats() override {
    at::HostStats stats;
    stats.active_bytes.current = call<int64_t>("host_stat", "active_bytes.current");
    stats.allocated_bytes.current = call<int64_t>("host_stat", "allocated_bytes.current");
    stats.num_host_alloc = call<int64_t>("host_stat", "num_host_alloc");
    stats.num_host_free = call<int64_t>("host_stat", "num_host_free");
    return stats;
  }
  void reset_accumulated_stats() override { call<void>("host_reset_stats"); }
  void reset_peak_stats() override { call<void>("host_reset_stats"); }
};

static DeviceMemory device_memory;
static PinnedMemory pinned_memory;
// The device's random numbers: a CPU generator with the device's label.
struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(DeviceIndex index)
      : at::CPUGeneratorImpl(c10::detail::getNonDeterministicRandom()) {
    device_ = Device(kSim, index);
    key_set_ = c10::DispatchKeySet(kKey);
  }
};

static void resize_storage(const c10::Storage& storage, size_t nbytes) {
  c10::DeviceGuard guard(storage.device());
  auto fresh = device_memory.allocate(nbytes);
  const size_t kept = std::min(nbytes, storage.nbytes());
  if (kept) device_memory.copy_data(fresh.get(), storage.data(), kept);
  auto* impl = storage.unsafeGetStorageImpl();
  impl->set_data_ptr(std::move(fresh));
  impl->set_nbytes(nbytes);
}

struct Hooks final : HooksBase {
  Hooks() = default;
  template <class Arguments>  // torch 2.11 passes some, which mean nothing
  explicit Hooks(const Arguments&) {}
  void init() const override {}
  bool hasXPU() const { return true; }
  DeviceIndex getNumGPUs() const { return deviceCount(); }
  DeviceIndex current_device() const { return getCurrentDevice(); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(DeviceIndex d) const override { call<void>("set_device", (int)d); }
  DeviceIndex getCurrentDevice() const override { return current().index(); }
  DeviceIndex exchangeDevice(DeviceIndex d) const override {
    return (DeviceIndex)call<int>("exchange_device", (int)d);
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex d) const override { return exchangeDevice(d); }
  bool isPinnedPtr(const void* data) const override {
    return call<bool>("is_pinned", address(data));
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  Device getDeviceFromPtr(void* data) const override {
    return device(call<int>("device_of_pointer", address(data)));
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const {
    resize_storage(storage, nbytes);
  }
  at::Generator getNewGenerator(DeviceIndex index = -1) const override {
    return at::make_generator<Generator>(index < 0 ? getCurrentDevice() : index);
  }
  const at::Generator& getDefaultGenerator(DeviceIndex index = -1) const override {
    static std::vector<at::Generator> generators = [this] {
      std::vector<at::Generator> made;
      for (DeviceIndex i = 0; i < device_count(); ++i) made.push_back(getNewGenerator(i));
      return made;
    }();
    return generators.at(index < 0 ? getCurrentDevice() : index);
  }
};

// What must be native: raw allocation and zero-copy views. Every other operator goes to Python.
static at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout>, std::optional<Device> where,
                        std::optional<bool>, std::optional<at::MemoryFormat> format) {
  check_dtype(c10::dtype_or_default(dtype));
  c10::DeviceGuard guard(where && where->has_index() ? *where : current());
  return at::detail::empty_generic(size, &device_memory,
                                   c10::DispatchKeySet(kKey),
                                   c10::dtype_or_default(dtype), format);
}
static at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                                std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                                std::optional<Device> where, std::optional<bool>) {
  check_dtype(c10::dtype_or_default(dtype));
  c10::DeviceGuard guard(where && where->has_index() ? *where : current());
  return at::detail::empty_strided_generic(size, stride, &device_memory,
                                           c10::DispatchKeySet(kKey),
                                           c10::dtype_or_default(dtype));
}
#ifdef OMNI_SIMULATE_XPU
// torch resizes the storages of XPU by this operator; those of an outside device by a hook.
static const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                                std::optional<at::MemoryFormat> format) {
  const auto layout = at::empty(size, at::TensorOptions(at::kMeta).memory_format(
                                          format.value_or(at::MemoryFormat::Contiguous)));
  const auto& storage = self.storage();
  const auto needed = (size_t)(layout.numel() + self.storage_offset()) * self.element_size();
  if (layout.numel() && needed > storage.nbytes()) resize_storage(storage, needed);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(layout.sizes(), layout.strides());
  return self;
}
#endif
TORCH_LIBRARY_IMPL(aten, SIM_TYPE, m) {
#ifdef OMNI_SIMULATE_XPU
  m.impl("resize_", resize);
#endif
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
}

#ifdef OMNI_SIMULATE_XPU
using XPUHooks = Hooks;
using at::XPUHooksRegistry, at::RegistererXPUHooksRegistry;
REGISTER_XPU_HOOKS(XPUHooks);  // torch asks for them by this name, once, when it first needs them
#endif

PYBIND11_MODULE(omni_simulator_shim, m) {
  m.def("install", [](py::object object) {
    driver = object.release().ptr();
    supported_dtypes = bits_of(py::handle(driver).attr("supported_dtypes")());
    c10::impl::DeviceGuardImplRegistrar registrar(kSim, new Guard());
    c10::SetAllocator(kSim, &device_memory, 0);
    at::setHostAllocator(kSim, &pinned_memory, 0);
#ifndef OMNI_SIMULATE_XPU
    at::RegisterPrivateUse1HooksInterface(new Hooks());
#endif
    register_graphs();
  });
  m.def("autocast", autocast);
}
