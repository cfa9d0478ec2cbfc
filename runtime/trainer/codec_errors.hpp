// How wrong codecs are on gradients that training really has, which are not normally distributed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/codec.hpp"
#include "runtime/trainer/config.hpp"
#include "runtime/trainer/dataset.hpp"
#include "runtime/trainer/model.hpp"

namespace rackrail::trainer {

struct CodecErrorOptions {
  std::int64_t local_batch = 32;
  int steps = 60;
  int every = 5;                    ///< steps from one measurement to the next
  std::vector<plan::Codec> also{};  ///< beside those with default parameters
};

/// By plan::to_string, of every codec with default parameters and those asked for: the median over
/// steps of ‖D(C(g)) − g‖/‖g‖ of one encoding, without error feedback. g: the gradients of one
/// worker that may be encoded strongly (plan::GradientTensor::is_protected; all, where all are
/// protected), each tensor encoded for itself. Trains the model on `data` meanwhile.
std::map<std::string, double> measure_codec_errors(const TrainingConfig& config, Model& model,
                                                   const Dataset& data,
                                                   const CodecErrorOptions& options);

}  // namespace rackrail::trainer
