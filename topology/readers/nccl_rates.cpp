#include "topology/readers/nccl_rates.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace rackrail::topology {
namespace {

constexpr Bandwidth megabytes(std::int64_t per_second) { return Bandwidth(per_second * 1'000'000); }

struct Model {
  std::string_view key;
  std::string_view name;
};

constexpr int kIntelSkylake = 0x55;
constexpr int kIntelSapphireRapids = 0x8F;
constexpr int kIntelEmeraldRapids = 0xCF;

bool is_gfx(std::string_view gcn, std::string_view generation) {
  return gcn == generation || (gcn.starts_with("gfx") && gcn.substr(3) == generation);
}

}  // namespace

std::optional<Bandwidth> nvlink_rate(int sm) {
  if (sm >= 100) return megabytes(40'100);
  if (sm >= 90) return megabytes(20'600);
  if (sm == 86) return megabytes(12'000);
  if (sm >= 70) return megabytes(20'000);
  if (sm >= 60) return megabytes(18'000);
  return std::nullopt;
}

std::optional<Bandwidth> xgmi_rate(std::string_view gcn) {
  if (is_gfx(gcn, "906") || is_gfx(gcn, "908")) return megabytes(24'000);
  if (is_gfx(gcn, "910") || is_gfx(gcn, "90a")) return megabytes(36'000);
  if (gcn.starts_with("gfx94") || gcn.starts_with("94") || gcn.starts_with("gfx95")) {
    return megabytes(48'000);
  }
  return std::nullopt;
}

std::optional<Bandwidth> pcie_lane_rate(std::string_view link_speed) {
  double transfers = 0;
  const auto [end, error] =
      std::from_chars(link_speed.data(), link_speed.data() + link_speed.size(), transfers);
  const std::string_view unit(
      end, static_cast<std::size_t>(link_speed.data() + link_speed.size() - end));
  if (error != std::errc{} || unit.find("GT/s") == std::string_view::npos) return std::nullopt;
  struct Speed {
    double transfers;
    std::int64_t hundred_megabits;
  };
  constexpr std::array kSpeeds{Speed{2.5, 15}, Speed{5, 30},   Speed{8, 60},
                               Speed{16, 120}, Speed{32, 240}, Speed{64, 480}};
  for (const Speed& speed : kSpeeds) {
    if (std::fabs(speed.transfers - transfers) < 0.01) {
      return Bandwidth(speed.hundred_megabits * 12'500'000);
    }
  }
  return std::nullopt;
}

Bandwidth default_pcie_lane_rate() { return Bandwidth(60 * 12'500'000LL); }

std::optional<Bandwidth> socket_rate(std::string_view arch, std::string_view vendor, int family,
                                     int model) {
  if (arch == "ppc64") return megabytes(32'000);
  if (arch == "arm64" || arch == "aarch64") return megabytes(6'000);
  if (vendor == "AuthenticAMD") return megabytes(16'000);
  if (vendor == "GenuineIntel") {
    if (family != 6) return megabytes(6'000);
    if (model >= kIntelEmeraldRapids) return megabytes(40'000);
    if (model >= kIntelSapphireRapids) return megabytes(22'000);
    if (model >= kIntelSkylake) return megabytes(10'000);
    return megabytes(6'000);
  }
  return std::nullopt;
}

Bandwidth default_socket_rate() { return megabytes(10'000); }

std::string gpu_model_by_sm(int sm) {
  switch (sm) {
    case 60:
      return "P100";
    case 70:
      return "V100";
    case 75:
      return "T4";
    case 80:
      return "A100";
    case 86:
      return "A10G";
    case 90:
      return "H100";
    case 100:
      return "B200";
    default:
      return "";
  }
}

std::string gpu_model_by_gcn(std::string_view gcn) {
  if (is_gfx(gcn, "906")) return "MI50";
  if (is_gfx(gcn, "908")) return "MI100";
  if (is_gfx(gcn, "910") || is_gfx(gcn, "90a")) return "MI250X";
  if (is_gfx(gcn, "942")) return "MI300X";
  return "";
}

std::string gpu_model_by_pci(std::string_view vendor, std::string_view device) {
  // From the PCI ID repository (pci-ids.ucw.cz).
  constexpr std::array kNvidia{
      Model{"0x1db1", "V100"}, Model{"0x1db4", "V100"}, Model{"0x1db5", "V100"},
      Model{"0x1eb8", "T4"},   Model{"0x2237", "A10G"}, Model{"0x20b0", "A100"},
      Model{"0x20b2", "A100"}, Model{"0x20f1", "A100"}, Model{"0x2330", "H100"},
      Model{"0x2331", "H100"}, Model{"0x2335", "H200"}};
  if (vendor == "0x10de") {
    for (const Model& model : kNvidia) {
      if (model.key == device) return std::string(model.name);
    }
  }
  return "";
}

}  // namespace rackrail::topology
