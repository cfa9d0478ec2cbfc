// The model as the network sees it: gradients that become ready one after another.
//
// The tensors are in the order in which their gradients become ready in the backward pass (last
// layer first). The files that say so, told by content, are in plan/workloads/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "plan/codec.hpp"
#include "plan/codec_errors.hpp"
#include "plan/noise_scale.hpp"

namespace rackrail::topology {
struct Node;
}  // namespace rackrail::topology

namespace rackrail::plan {

/// Of a tensor as a matrix: further dimensions count as columns, as those of a convolution's
/// filters (Vogels et al., arXiv 1905.13727).
struct MatrixShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool operator==(const MatrixShape&) const = default;
};

struct GradientTensor {
  std::string name;
  std::int64_t elements = 0;  ///< FP32 elements
  Duration ready_gap{};       ///< backward time between the gradient before this one and this one
  std::optional<MatrixShape> shape{};  ///< none: not known, or no matrix

  Bytes bytes() const { return Bytes(elements * 4); }
  /// Norms, biases and tensors below 64 Ki elements are never encoded beyond FP16: they carry few
  /// bytes and are sensitive.
  bool is_protected() const;
};

struct Workload {
  std::string name;
  std::string source;                   ///< where the figures come from
  std::string device_class;             ///< device on which the times were measured ("V100"); or ""
  std::int64_t profiled_batch = 1;      ///< samples per device in the measured step
  std::vector<GradientTensor> tensors;  ///< in gradient-ready order
  Duration forward;                     ///< forward time of the measured step
  Duration backward_tail;               ///< backward time after the last gradient (usually 0)
  Duration optimizer;                   ///< update of the parameters after the last bucket
  double fixed_share = 0.1;  ///< share of compute time that does not grow with the batch, 0..1
  std::optional<Bytes> memory_per_sample;  ///< activations
  std::optional<Bytes> memory_fixed;       ///< parameters, gradients, optimiser state
  std::optional<double> noise_scale;       ///< gradient noise scale B_noise, in samples
  /// Along training, ascending in progress, where the file has a list of [progress, noise scale];
  /// `noise_scale` is its mean then. Empty otherwise.
  std::vector<NoiseAt> noise_curve;
  /// Relative errors ‖D(C(g)) − g‖/‖g‖ of codecs on gradients of this model, by plan::to_string,
  /// where somebody measured them (`rackrail calibrate`).
  std::map<std::string, double> codec_errors;
  double base_learning_rate = 0.1;  ///< at `base_batch`
  bool has_learning_rate = false;   ///< whether its file says so: else that is a default
  std::int64_t base_batch = 256;    ///< global batch of the base learning rate
  /// What its file has and is not kept to here, a line each, which begins with the file's name.
  std::vector<std::string> notes;

  std::int64_t elements() const;
  /// As measured on its own gradients, else of the shipped table (plan::usual_error).
  double codec_error(const Codec& codec) const { return sourced_codec_error(codec).error; }
  CodecError sourced_codec_error(const Codec& codec) const;
  Bytes gradient_bytes() const { return Bytes(elements() * 4); }
  /// From the first backward operation to the last gradient, plus the tail.
  Duration backward() const;
  /// SHA-256 of names and sizes of the tensors: what a plan must match to run this model.
  std::string digest() const;
};

/// What a user says of a file that leaves it open: of a transformer's config.json.
struct WorkloadOptions {
  std::optional<std::int64_t> sequence;  ///< tokens of a sample
  std::string dtype;                     ///< of gradients: "fp32", "bf16", "fp16"; empty: none said
};

/// A file, or the name of a shipped one (`configs`/models/<name>.yaml); it may be packed with gzip.
/// Throws ConfigError, for options that its kind of file has no use for, too.
Workload read_workload(const std::string& name_or_path, const std::filesystem::path& configs,
                       const WorkloadOptions& options = {});
/// The same for the content of such a file; `path` is for messages and names what has no name.
Workload read_workload_text(const std::string& content, const std::filesystem::path& path,
                            const WorkloadOptions& options = {});
/// Whether the file has the fields of Workload by name, as to_yaml() writes them.
bool is_workload_yaml(const std::string& content, const std::filesystem::path& path);
/// The file that read_workload reads. Throws ConfigError with the names of the shipped workloads.
std::filesystem::path workload_path(const std::string& name_or_path,
                                    const std::filesystem::path& configs);
/// Text of a file that reads back as the same workload.
std::string to_yaml(const Workload& workload);
/// Names in alphabetical order; none when the folder does not exist.
std::vector<std::string> shipped_workloads(const std::filesystem::path& configs);

/// Factor on compute times from one device class to another: the ratio of the classes' sustained
/// FP32-class training rates. 1 for equal names, known or not. An unknown name counts as the
/// likeliest class (device_class.hpp); none where nothing is likely.
///
/// Rule: half of a V100's step is matrix products, which scale with the peak FP32-class matrix
/// rate, and half is bound by memory (normalisation, activations, the optimiser), which scales with
/// its bandwidth; both from the data sheets in configs/devices. A first guess, to be replaced by a
/// measurement where one exists.
std::optional<double> compute_scale(std::string_view from_class, std::string_view to_class);

/// Compute times of one step on a device class with a local batch, scaled from the profile:
/// t(b) = t₀ · (fixed_share + (1 − fixed_share) · b / profiled_batch) · class factor; the
/// optimiser's time does not depend on the batch. The factor is 1 where the profile or the rank
/// names no class. A GPU of an unknown class counts as device_figures_of() says. Throws ConfigError
/// for another unknown class and for a batch below 1.
struct ComputeTimes {
  Duration forward;
  std::vector<Duration> ready;  ///< per tensor: from the start of backward to its gradient
  Duration backward;            ///< whole backward pass
  Duration optimizer;
};
ComputeTimes compute_times(const Workload& workload, const topology::Node& node,
                           std::int64_t local_batch);
/// The same of a device class by name.
ComputeTimes compute_times(const Workload& workload, std::string_view device_class,
                           std::int64_t local_batch);

}  // namespace rackrail::plan
