#include "sim/nccl/parameters.hpp"

#include <fmt/format.h>

#include "base/config_tree.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"

namespace rackrail::sim::nccl {

namespace {

constexpr double kMicrosecond = 1e-6;
constexpr double kNvlsLatency = 25 * kMicrosecond;
constexpr int kUsualChannels = 24;
constexpr int kUsualNvlsChannels = 16;
constexpr int kMostChannels = 64;

constexpr std::array<ParameterInfo, 8> kTable{{
    {"launch", &Parameters::launch_s, true, 20e-6, 0.7, 1e-6, 1e-3,
     "kernel launch and the first and last synchronisation, as nccl-tests shows for small sizes"},
    {"link_efficiency", &Parameters::link_efficiency, false, 0.80, 0.05, 0.1, 1.0,
     "NCCL: 20 of 25 GB/s per NVLink on sm80"},
    {"slice_overhead", &Parameters::slice_overhead_s, true, 1e-6, 0.7, 1e-8, 1e-4,
     "two slices per step of NCCL's 3.4 us"},
    {"pass_share", &Parameters::pass_share, false, 0.2, 1.0, 1e-3, 1.0, "measured on A100"},
    {"tail_share", &Parameters::tail_share, false, 0.4, 1.0, 1e-3, 4.0, "measured on A100"},
    {"sharp_efficiency", &Parameters::sharp_efficiency, false, 0.85, 0.15, 0.1, 1.2,
     "NCCL's own figure for NVLS on Hopper"},
    {"network_efficiency", &Parameters::network_efficiency, false, 0.96, 0.02, 0.1, 1.0,
     "NCCL: 12 of 12.5 GB/s for a 100 Gbit/s NIC"},
    {"network_latency", &Parameters::network_latency, false, 1.0, 0.5, 0.05, 20.0,
     "NCCL's latency table"},
}};

}  // namespace

std::string_view to_string(Algorithm algorithm) {
  constexpr std::array<std::string_view, 4> kNames{"ring", "tree", "nvls", "nvls-tree"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::string_view to_string(Protocol protocol) {
  constexpr std::array<std::string_view, kProtocols> kNames{"ll", "ll128", "simple"};
  return kNames[static_cast<std::size_t>(protocol)];
}

std::span<const ParameterInfo> parameter_table() { return kTable; }

Parameters usual_parameters() {
  Parameters parameters;
  for (const ParameterInfo& info : kTable) {
    parameters.*info.member = info.usual;
  }
  parameters.channels = kUsualChannels;
  parameters.nvls_channels = kUsualNvlsChannels;
  parameters.nvls_tree_chunk = 128_KiB;
  return parameters;
}

Parameters read_parameters(const std::filesystem::path& file) {
  const auto root = ConfigValue::parse(file.string(), read_file(file));
  root.allow_only({"name", "channels", "nvls_channels", "nvls_tree_chunk", "launch",
                   "link_efficiency", "slice_overhead", "pass_share", "tail_share",
                   "sharp_efficiency", "network_efficiency", "network_latency"});
  Parameters parameters = usual_parameters();
  if (const auto* value = root.find("channels")) {
    parameters.channels = static_cast<int>(value->count(1, kMostChannels));
  }
  if (const auto* value = root.find("nvls_channels")) {
    parameters.nvls_channels = static_cast<int>(value->count(1, kMostChannels));
  }
  if (const auto* value = root.find("nvls_tree_chunk")) {
    parameters.nvls_tree_chunk = value->bytes();
    if (parameters.nvls_tree_chunk < 32_KiB || parameters.nvls_tree_chunk > 128_KiB) {
      value->fail("32 KiB to 128 KiB");
    }
  }
  for (const ParameterInfo& info : kTable) {
    const ConfigValue* value = root.find(info.name);
    if (value == nullptr) {
      continue;
    }
    if (info.is_time) {
      const double seconds = value->duration().seconds();
      if (seconds < info.least || seconds > info.most) {
        value->fail(
            fmt::format("{} us to {} us", info.least / kMicrosecond, info.most / kMicrosecond));
      }
      parameters.*info.member = seconds;
    } else {
      parameters.*info.member = value->ratio(info.least, info.most);
    }
  }
  return parameters;
}

std::string to_yaml(const Parameters& parameters, std::string_view name, std::string_view origin) {
  std::string text;
  while (!origin.empty()) {
    const std::size_t end = origin.find('\n');
    text += fmt::format("# {}\n", origin.substr(0, end));
    origin.remove_prefix(end == std::string_view::npos ? origin.size() : end + 1);
  }
  text += fmt::format("name: {}\nchannels: {}\nnvls_channels: {}\nnvls_tree_chunk: {}\n", name,
                      parameters.channels, parameters.nvls_channels,
                      rackrail::to_exact_string(parameters.nvls_tree_chunk));
  for (const ParameterInfo& info : kTable) {
    const double value = parameters.*info.member;
    text += info.is_time ? fmt::format("{}: {:.4g} us\n", info.name, value / kMicrosecond)
                         : fmt::format("{}: {:.4g}\n", info.name, value);
  }
  return text;
}

double hop_latency_s(Algorithm algorithm, Protocol protocol, HopKind kind) {
  // Tree and ring; an NVLS tree takes 14 us per network hop too.
  constexpr std::array<std::array<ByProtocol, 3>, 2> kHops{{
      {{{0.6, 1.25, 4.0}, {1.0, 1.9, 4.0}, {5.0, 8.5, 14.0}}},
      {{{0.6, 1.9, 3.4}, {1.0, 2.5, 5.7}, {2.7, 4.0, 14.0}}},
  }};
  const bool is_nvls = algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree;
  if (is_nvls && kind != HopKind::kNetwork) {
    return kNvlsLatency / 2;  // to the switch's sum and back
  }
  const std::size_t row = algorithm == Algorithm::kRing ? 1 : 0;
  return kHops[row][static_cast<std::size_t>(kind)][static_cast<std::size_t>(protocol)] *
         kMicrosecond;
}

double base_latency_s(Algorithm algorithm, Protocol protocol) {
  constexpr std::array<ByProtocol, 2> kBase{{{6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}}};
  const std::size_t row = algorithm == Algorithm::kRing ? 1 : 0;
  return kBase[row][static_cast<std::size_t>(protocol)] * kMicrosecond;
}

double payload_share(Protocol protocol) {
  constexpr ByProtocol kShares{0.5, 120.0 / 128.0, 1.0};
  return kShares[static_cast<std::size_t>(protocol)];
}

}  // namespace rackrail::sim::nccl
