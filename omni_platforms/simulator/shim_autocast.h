// Casts the arguments of one operator as autocast does, with torch's own cache of cast weights.
// Boxed, because torch's templates for this take half a minute to compile. Which operator has
// which policy is in `operators/autocast.py`.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "shim_call.h"

namespace at::autocast {  // from ATen/autocast_mode.h, which includes every operator
TORCH_API Tensor cached_cast(ScalarType to, const Tensor& tensor, DeviceType device);
TORCH_API ScalarType get_autocast_dtype(DeviceType device);
}  // namespace at::autocast

static bool may_cast(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kSim && tensor.is_floating_point() &&
         tensor.scalar_type() != at::kDouble;
}

using Values = c10::ArrayRef<c10::IValue>;

template <typename F>
void for_each_tensor(Values values, F function) {
  for (const auto& value : values) {
    if (value.isTensor()) function(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) function(tensor);
  }
}

static at::ScalarType widest_of(Values values) {
  auto found = at::autocast::get_autocast_dtype(kSim);
  for_each_tensor(values, [&](const at::Tensor& tensor) {
    if (may_cast(tensor) && tensor.scalar_type() == at::kFloat) found = at::kFloat;
  });
  return found;
}

static c10::IValue cast_value(const c10::IValue& value, at::ScalarType to) {
  if (value.isTensor()) return at::autocast::cached_cast(to, value.toTensor(), kSim);
  if (!value.isTensorList()) return value;
  auto tensors = value.toTensorVector();
  for (auto& tensor : tensors) tensor = at::autocast::cached_cast(to, tensor, kSim);
  return tensors;
}

static void set_dtype(const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  const size_t first = stack->size() - schema.arguments().size();
  auto place = schema.argumentIndexWithName("dtype");
  const auto& head = stack->at(first);
  if (!place || !head.isTensor() || !may_cast(head.toTensor())) return;
  if (stack->at(first + *place).isNone()) stack->at(first + *place) = (int64_t)at::kFloat;
}

enum class Policy { lower_precision_fp, fp32, fp32_set_opt_dtype, promote };

template <Policy policy>
void cast_and_call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard off(c10::DispatchKey::AutocastPrivateUse1);
  if constexpr (policy == Policy::fp32_set_opt_dtype) {
    set_dtype(op.schema(), stack);
  } else {
    const size_t count = op.schema().arguments().size();
    Values values(stack->data() + stack->size() - count, count);
    at::ScalarType to = at::kFloat;
    if constexpr (policy == Policy::promote) to = widest_of(values);
    if constexpr (policy == Policy::lower_precision_fp) to = at::autocast::get_autocast_dtype(kSim);
    for (auto place = stack->end() - count; place != stack->end(); ++place)
      *place = cast_value(*place, to);
  }
  op.callBoxed(stack);
}

template <Policy policy>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<&cast_and_call<policy>>();
}

// Gives the operator `name` ("mm", "softmax.int") the autocast `policy`. Raises for unknown ones.
static void autocast(const std::string& name, const std::string& policy) {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten",
                                         c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  if (policy == "lower_precision_fp") aten->impl(name.c_str(), boxed<Policy::lower_precision_fp>());
  else if (policy == "fp32") aten->impl(name.c_str(), boxed<Policy::fp32>());
  else if (policy == "fp32_set_opt_dtype")
    aten->impl(name.c_str(), boxed<Policy::fp32_set_opt_dtype>());
  else if (policy == "promote") aten->impl(name.c_str(), boxed<Policy::promote>());
  else throw std::invalid_argument("no autocast policy " + policy);
}
