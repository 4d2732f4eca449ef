// torch.accelerator.Graph for the simulated device (torch 2.12 and newer).
#pragma once
#include "shim_call.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>

struct Graph final : at::GraphImplInterface {
  explicit Graph(bool keep) : number(call<int64_t>("graph_create", keep)) {}
  ~Graph() override { quiet([&] { call<void>("graph_destroy", number); }); }
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override {
    call<void>("graph_begin", number, (int64_t)pool.first, (int64_t)pool.second, (int)mode);
  }
  void capture_end() override { call<void>("graph_end", number); }
  void instantiate() override { call<void>("graph_instantiate", number); }
  void replay() override { call<void>("graph_replay", number); }
  void reset() override { call<void>("graph_reset", number); }
  c10::MempoolId_t pool() const override {
    const auto found = call<Key>("graph_pool", number);
    return {(c10::CaptureId_t)found.first, (c10::CaptureId_t)found.second};
  }
  void enable_debug_mode() override { call<void>("graph_enable_debug", number); }
  void debug_dump(const std::string& path) override { call<void>("graph_dump", number, path); }
  const int64_t number;
};

// torch looks a device's graphs up under the name that it has at that time.
static void register_graphs() {
  at::GraphImplRegistry()->Register(
      c10::DeviceTypeName(kSim, /*lower_case=*/false), [](at::GraphImplArgs args) {
        return std::unique_ptr<at::GraphImplInterface>(new Graph(args.keep_graph));
      });
}
#else
static void register_graphs() {}
#endif
