#include "scheduling/correction.h"

#include <algorithm>

namespace helm::scheduling {
namespace {

constexpr double kMemory = 0.98;  // weight of what was before each pass: half of it after 34
constexpr double kHold = 0.1;     // weight of factors of 1, in passes

double bounded(double factor) { return std::clamp(factor, 0.05, 20.0); }

}  // namespace

double Correction::Ratio::update(double measured_now, double predicted_now) {
  measured = kMemory * measured + measured_now, predicted = kMemory * predicted + predicted_now;
  return bounded(measured / predicted);
}

void Correction::observe(Kind kind, const Load& load, const Cost& believed, const Times& measured) {
  const Times predicted = time_of(believed, kind, load);
  const double attention = believed.layers * device_attention(believed, load.half[0]);
  if (measured.gpu > 0) fit_device((predicted.gpu - attention) / measured.gpu, attention / measured.gpu);
  if (predicted.cpu > 0) factors_[2] = host_.update(measured.cpu, predicted.cpu);
  if (predicted.link > 0) factors_[3] = link_.update(measured.link, predicted.link);
  fresh_ = false;
}

// Minimises the sum of (1 - f l - g a)^2 over passes, and kHold times ((f - 1)^2 + (g - 1)^2).
void Correction::fit_device(double linear, double attention) {
  squares_ = {kMemory * squares_[0] + linear * linear, kMemory * squares_[1] + linear * attention,
              kMemory * squares_[2] + attention * attention};
  products_ = {kMemory * products_[0] + linear, kMemory * products_[1] + attention};
  const double a = squares_[0] + kHold, b = squares_[1], c = squares_[2] + kHold;
  const double x = products_[0] + kHold, y = products_[1] + kHold, determinant = a * c - b * b;
  factors_[0] = bounded((c * x - b * y) / determinant);
  factors_[1] = bounded((a * y - b * x) / determinant);
}

const Cost& Correction::corrected(const Cost& believed) {
  if (!cost_) cost_ = believed;
  if (!fresh_) scale(believed);
  fresh_ = true;
  return *cost_;
}

void Correction::scale(const Cost& believed) {
  const auto [linear, attention, host, link] = factors_;
  cost_->linear.scale(believed.linear, linear), cost_->ends.scale(believed.ends, linear);
  cost_->gpu_attention.scale(believed.gpu_attention, attention);
  cost_->gpu_request = attention * believed.gpu_request;
  cost_->prefill_compute.scale(believed.prefill_compute, attention);
  cost_->prefill_read.scale(believed.prefill_read, attention);
  cost_->cpu_attention.scale(believed.cpu_attention, host), cost_->cpu_request = host * believed.cpu_request;
  cost_->to_host.scale(believed.to_host, link), cost_->to_device.scale(believed.to_device, link);
  cost_->swap_out.scale(believed.swap_out, link), cost_->swap_in.scale(believed.swap_in, link);
  cost_->state_copy = linear * believed.state_copy;
  cost_->state_out = link * believed.state_out, cost_->state_in = link * believed.state_in;
}

}  // namespace helm::scheduling
