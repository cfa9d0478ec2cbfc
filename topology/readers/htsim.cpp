// The .topo files of the simulator htsim: a tree of hosts, ToRs, aggregation and core switches.
//
//   Nodes 128
//   Tiers 2
//   Podsize 128
//   Tier 0                        ToRs: links down to hosts, Radix_Up links to the next tier
//   Downlink_speed_Gbps 200
//   Radix_Down 16
//   Radix_Up 4
//   Downlink_Latency_ns 500
//   Switch_Latency_ns 0
//
// Bundle N is the number of parallel links from a switch of the tier to each below. A switch's
// latency is divided among the links at its two sides.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "topology/readers/fabric.hpp"
#include "topology/readers/formats.hpp"
#include "topology/readers/network_file.hpp"

namespace rackrail::topology {
namespace {

using Settings = std::map<std::string, std::int64_t, LessInAnyCase>;

struct HtsimFile {
  Settings general;
  std::vector<Settings> tiers;
};

class HtsimParser {
 public:
  explicit HtsimParser(std::string file) : file_(std::move(file)) {}

  NetworkFile read(std::string_view content) {
    parse(content);
    const std::int64_t hosts = at(settings_.general, "Nodes", "the file");
    const auto tiers = static_cast<std::int64_t>(settings_.tiers.size());
    if (tiers < 2 || tiers > 3 || at(settings_.general, "Tiers", "the file") != tiers) {
      fail("", fmt::format("{} blocks 'Tier'", tiers), "2 or 3, as many as 'Tiers' says");
    }
    const auto podsize = settings_.general.find("Podsize");
    // Of two tiers, all is one pod.
    const std::int64_t pod =
        tiers == 3 && podsize != settings_.general.end() ? podsize->second : hosts;
    return build(hosts, pod);
  }

 private:
  [[noreturn]] void fail(const std::string& where, const std::string& found,
                         const std::string& expected) const {
    throw ConfigError(ErrorContext{file_, where, found, expected});
  }

  std::int64_t at(const Settings& fields, std::string_view key, const std::string& where) const {
    const auto value = fields.find(key);
    if (value == fields.end()) fail(where, fmt::format("no '{}'", key), "a number");
    return value->second;
  }

  std::int64_t tier_at(std::size_t tier, std::string_view key, std::int64_t otherwise) const {
    const auto value = settings_.tiers[tier].find(key);
    return value != settings_.tiers[tier].end() ? value->second : otherwise;
  }

  void parse(std::string_view content) {
    constexpr std::array<std::string_view, 13> kKeys{"Nodes",
                                                     "Tiers",
                                                     "Podsize",
                                                     "Tier",
                                                     "Downlink_speed_Gbps",
                                                     "Radix_Down",
                                                     "Radix_Up",
                                                     "Downlink_Latency_ns",
                                                     "Switch_Latency_ns",
                                                     "Bundle",
                                                     "Oversubscribed",
                                                     "Queue_Down",
                                                     "Queue_Up"};
    for (std::size_t number = 1; !content.empty(); ++number) {
      const std::size_t end = content.find('\n');
      std::string_view line = content.substr(0, end);
      content.remove_prefix(end == content.npos ? content.size() : end + 1);
      line = trimmed(line.substr(0, line.find('#')));
      if (line.empty()) continue;
      const std::string where = fmt::format("line {}", number);
      const std::string_view key = line.substr(0, line.find_first_of(" \t"));
      const std::string_view text = trimmed(line.substr(key.size()));
      const bool is_known = std::ranges::any_of(
          kKeys, [key](std::string_view one) { return is_same_in_any_case(one, key); });
      if (!is_known)
        fail(where, fmt::format("'{}'", key), fmt::format("{}", fmt::join(kKeys, ", ")));
      std::int64_t value = 0;
      const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || stop != text.data() + text.size() || value < 0 ||
          value > 1'000'000'000) {
        fail(where, fmt::format("'{}'", text), "a whole number");
      }
      if (is_same_in_any_case(key, "Tier")) {
        if (value != std::ssize(settings_.tiers) || value > 2) {
          fail(where, fmt::format("'{}'", line), "Tier 0, Tier 1 and at most Tier 2, in order");
        }
        settings_.tiers.emplace_back();
      } else {
        Settings& fields = settings_.tiers.empty() ? settings_.general : settings_.tiers.back();
        if (!fields.emplace(key, value).second)
          fail(where, fmt::format("'{}' twice", key), "it once");
      }
    }
  }

  std::int64_t divided(std::int64_t a, std::int64_t b, const std::string& what) const {
    if (b <= 0 || a % b != 0 || a == 0) {
      fail("", fmt::format("{}: {} divided by {}", what, a, b), "a whole number above 0");
    }
    return a / b;
  }

  Duration latency(std::size_t lower_tier_of_link) const {
    const std::size_t t = lower_tier_of_link;
    const std::int64_t below = t > 0 ? tier_at(t - 1, "Switch_Latency_ns", 0) : 0;
    const std::int64_t ends = tier_at(t, "Switch_Latency_ns", 0) + below;
    return 1_ns * tier_at(t, "Downlink_Latency_ns", 0) + Duration(500) * ends;
  }

  Bandwidth rate(std::size_t tier) const {
    const std::int64_t speed =
        at(settings_.tiers[tier], "Downlink_speed_Gbps", fmt::format("Tier {}", tier));
    if (speed == 0) fail(fmt::format("Tier {}", tier), "no speed", "Downlink_speed_Gbps above 0");
    return 1_Gbps * speed;
  }

  std::int64_t radix(std::size_t tier, const char* key) const {
    return at(settings_.tiers[tier], key, fmt::format("Tier {}", tier));
  }

  NetworkFile build(std::int64_t hosts, std::int64_t pod) {
    const std::int64_t pods = divided(hosts, pod, "Nodes by Podsize");
    const std::int64_t down = radix(0, "Radix_Down");
    const std::int64_t tors = divided(pod, down, "hosts of a pod by Radix_Down");
    const std::int64_t bundle = tier_at(1, "Bundle", 1);
    const std::int64_t aggs = divided(tors * radix(0, "Radix_Up"), radix(1, "Radix_Down"),
                                      "aggregation switches of a pod");
    const std::int64_t ups = divided(radix(0, "Radix_Up"), bundle, "Radix_Up of ToRs by Bundle");
    if (ups != aggs) {
      fail("Tier 0", fmt::format("{} ways up from a ToR to {} switches", ups, aggs),
           "a way to each: Radix_Up × ToRs of a pod = Radix_Down of Tier 1 × its switches");
    }
    require_buildable(hosts * 3 + pods * tors * aggs * 2);
    for (std::int64_t p = 0; p < pods; ++p) add_pod(p, tors, aggs, down, bundle);
    if (settings_.tiers.size() == 3) add_cores(pods, tors, aggs);
    return std::move(network_);
  }

  void add_pod(std::int64_t p, std::int64_t tors, std::int64_t aggs, std::int64_t down,
               std::int64_t bundle) {
    const std::size_t first_tor = network_.switches.size();
    for (std::int64_t t = 0; t < tors; ++t) {
      for (std::int64_t h = 0; h < down; ++h) {
        const std::size_t host = network_.hosts.size();
        network_.host_cables.push_back({host, network_.switches.size(), "", rate(0), latency(0)});
        network_.hosts.push_back({fmt::format("host{}", host), "", {}});
      }
      network_.switches.push_back({fmt::format("tor{}", p * tors + t), 0, false});
    }
    for (std::int64_t a = 0; a < aggs; ++a) {
      for (std::int64_t t = 0; t < tors; ++t) {
        network_.switch_cables.push_back({first_tor + static_cast<std::size_t>(t),
                                          network_.switches.size(), static_cast<int>(bundle),
                                          rate(1), latency(1)});
      }
      network_.switches.push_back({fmt::format("spine{}", p * aggs + a), 1, false});
    }
  }

  /// Cores in planes: each is joined to one aggregation switch of every pod.
  void add_cores(std::int64_t pods, std::int64_t tors, std::int64_t aggs) {
    const std::int64_t bundle = tier_at(2, "Bundle", 1);
    const std::int64_t per_agg =
        divided(radix(1, "Radix_Up"), bundle, "Radix_Up of Tier 1 by Bundle");
    const std::int64_t pod_switches = tors + aggs;
    require_buildable(pods * aggs * per_agg * 3);
    for (std::int64_t a = 0; a < aggs; ++a) {
      for (std::int64_t c = 0; c < per_agg; ++c) {
        for (std::int64_t p = 0; p < pods; ++p) {
          network_.switch_cables.push_back({static_cast<std::size_t>(p * pod_switches + tors + a),
                                            network_.switches.size(), static_cast<int>(bundle),
                                            rate(2), latency(2)});
        }
        network_.switches.push_back({fmt::format("core{}", a * per_agg + c), 2, false});
      }
    }
  }

  std::string file_;
  HtsimFile settings_;
  NetworkFile network_;
};

class HtsimReader : public Reader {
 public:
  std::string_view format() const override { return "htsim"; }

  bool accepts(const std::filesystem::path&, std::string_view content) const override {
    const auto has = [content](std::string_view key) {
      for (std::string_view rest = content; !rest.empty();) {
        const std::size_t end = rest.find('\n');
        const std::string_view line = trimmed(rest.substr(0, end));
        if (is_same_in_any_case(line.substr(0, line.find_first_of(" \t")), key)) return true;
        rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
      }
      return false;
    };
    return has("Nodes") && has("Tiers") && has("Tier");
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    return build_network(path, HtsimParser(path.string()).read(content), options);
  }
};

}  // namespace

std::unique_ptr<Reader> make_htsim_reader() { return std::make_unique<HtsimReader>(); }

}  // namespace rackrail::topology
