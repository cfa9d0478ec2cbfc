#include "topology/readers/nccl_rates.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include "base/text.hpp"

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

Bandwidth default_nvlink_rate() { return megabytes(20'000); }
Bandwidth default_xgmi_rate() { return megabytes(24'000); }

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
    case 89:
      return "L40S";
    case 90:
      return "H100";
    case 100:
      return "B200";
    case 103:
      return "B300";
    case 120:
      return "RTX PRO 6000";
    default:
      return "";
  }
}

std::string gpu_model_by_gcn(std::string_view gcn) {
  if (is_gfx(gcn, "906")) return "MI50";
  if (is_gfx(gcn, "908")) return "MI100";
  if (is_gfx(gcn, "910") || is_gfx(gcn, "90a")) return "MI250X";
  if (is_gfx(gcn, "942")) return "MI300X";
  if (is_gfx(gcn, "950")) return "MI355X";
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

namespace {

/// A generation of GPUs that share NVLink (`sm`) or xGMI (`gcn`) and PCIe.
struct Generation {
  std::string_view name;
  int sm;                ///< 0: AMD
  std::string_view gcn;  ///< empty: NVIDIA
  bool has_links;
  int pcie;
};

// Data sheets of NVIDIA and AMD.
constexpr std::array kGenerations{
    Generation{"GB300", 103, "", true, 6},      Generation{"GB200", 100, "", true, 5},
    Generation{"B300", 103, "", true, 6},       Generation{"B200", 100, "", true, 5},
    Generation{"GH200", 90, "", true, 5},       Generation{"H200", 90, "", true, 5},
    Generation{"H100", 90, "", true, 5},        Generation{"H800", 90, "", true, 5},
    Generation{"H20", 90, "", true, 5},         Generation{"A100", 80, "", true, 4},
    Generation{"A800", 80, "", true, 4},        Generation{"A30", 80, "", true, 4},
    Generation{"A40", 86, "", true, 4},         Generation{"A6000", 86, "", true, 4},
    Generation{"A10", 86, "", false, 4},        Generation{"A10G", 86, "", false, 4},
    Generation{"3090", 86, "", true, 4},        Generation{"4090", 89, "", false, 4},
    Generation{"5090", 120, "", false, 5},      Generation{"L4", 89, "", false, 4},
    Generation{"L40", 89, "", false, 4},        Generation{"L40S", 89, "", false, 4},
    Generation{"V100", 70, "", true, 3},        Generation{"P100", 60, "", true, 3},
    Generation{"T4", 75, "", false, 3},         Generation{"MI355X", 0, "gfx950", true, 5},
    Generation{"MI350X", 0, "gfx950", true, 5}, Generation{"MI325X", 0, "gfx942", true, 5},
    Generation{"MI300X", 0, "gfx942", true, 5}, Generation{"MI300A", 0, "gfx942", true, 5},
    Generation{"MI250X", 0, "gfx90a", true, 4}, Generation{"MI250", 0, "gfx90a", true, 4},
    Generation{"MI210", 0, "gfx90a", true, 4},  Generation{"MI100", 0, "gfx908", true, 4},
    Generation{"MI60", 0, "gfx906", true, 4},   Generation{"MI50", 0, "gfx906", true, 4}};

/// By generation, from 3.0.
struct Pcie {
  std::string_view lane;
  std::string_view name;
};
constexpr std::array kPcie{Pcie{"8 GT/s", "PCIe 3.0 x16"}, Pcie{"16 GT/s", "PCIe 4.0 x16"},
                           Pcie{"32 GT/s", "PCIe 5.0 x16"}, Pcie{"64 GT/s", "PCIe 6.0 x16"}};

bool is_word_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Whether a word of the text is this name, in any case.
bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = 0; at + word.size() <= text.size(); ++at) {
    const std::size_t end = at + word.size();
    if (is_same_in_any_case(text.substr(at, word.size()), word) &&
        (at == 0 || !is_word_character(text[at - 1])) &&
        (end == text.size() || !is_word_character(text[end]))) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<GpuModel> gpu_model_named(std::string_view text) {
  for (const Generation& generation : kGenerations) {
    if (!has_word(text, generation.name)) continue;
    const Pcie& pcie = kPcie.at(static_cast<std::size_t>(generation.pcie - 3));
    GpuModel model;
    model.name = generation.name;
    if (generation.has_links) {
      model.link = generation.sm > 0 ? nvlink_rate(generation.sm) : xgmi_rate(generation.gcn);
    }
    model.pcie = pcie_lane_rate(pcie.lane).value_or(default_pcie_lane_rate()) * 16;
    model.pcie_name = pcie.name;
    return model;
  }
  return std::nullopt;
}

}  // namespace rackrail::topology
