#include "sim/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "base/config_tree.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"

namespace rackrail::sim {

namespace {

constexpr int kMostSteps = 1'000'000;
constexpr int kMostPrefetch = 1'000'000;
constexpr int kMostConnections = 256;
constexpr double kLargestFactor = 1e6;
constexpr std::size_t kMostSpells = 1'000'000;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class ScenarioReader {
 public:
  ScenarioReader(const std::string& file, const topology::Topology& topology)
      : folder_(std::filesystem::path(file).parent_path()), topology_(topology) {}

  Scenario read(const ConfigValue& root) {
    root.allow_only({"name", "steps", "staleness", "local_steps", "asynchronous", "network", "seed",
                     "loading", "slow_devices", "links", "background", "packets", "multipath",
                     "connections", "placement", "jobs",
                     // Of the run as a whole, see explore/outages.hpp.
                     "duration", "checkpoint_every", "outages"});
    for (const char* key : {"duration", "checkpoint_every"}) {
      if (root.find(key) != nullptr && root.find("outages") == nullptr) {
        root.require(key).fail(fmt::format("'{}' without outages", key),
                               "'outages' beside it, or 'steps' for how long to simulate");
      }
    }
    for (const char* key : {"staleness", "local_steps"}) {
      if (root.find(key) != nullptr && root.find("asynchronous") != nullptr &&
          root.require("asynchronous").flag()) {
        root.require(key).fail(fmt::format("'{}' of what is asynchronous", key),
                               "one of them: nobody waits there");
      }
    }
    Scenario scenario;
    SimulationOptions& options = scenario.options;
    with(root, "name", [&](const ConfigValue& v) { scenario.name = v.name(); });
    with(root, "steps", [&](const ConfigValue& v) { options.steps = number(v, 1, kMostSteps); });
    with(root, "staleness",
         [&](const ConfigValue& v) { options.staleness = number(v, 0, kMostSteps); });
    with(root, "local_steps",
         [&](const ConfigValue& v) { options.local_steps = number(v, 1, kMostSteps); });
    with(root, "asynchronous", [&](const ConfigValue& v) { options.is_asynchronous = v.flag(); });
    with(root, "network", [&](const ConfigValue& v) { options.network = level(v); });
    scenario.sets_packets = root.find("packets") != nullptr;
    with(root, "packets", [&](const ConfigValue& v) { read_packet_options(options.packets, v); });
    with(root, "multipath", [&](const ConfigValue& v) { options.multipath = multipath(v); });
    with(root, "connections", [&](const ConfigValue& v) {
      options.connections = number(v, 1, kMostConnections);
      if (options.connections > 1 && options.multipath != Multipath::kEcmp) {
        v.fail("several connections without hashed routes", "'multipath: ecmp' beside it");
      }
    });
    with(root, "placement",
         [&](const ConfigValue& v) { scenario.placement = read_placement(v, topology_); });
    each(root, "jobs", [&](const ConfigValue& v) { add_job(v, scenario.jobs); });
    with(root, "loading", [&](const ConfigValue& v) { options.loading = loading(v); });
    Disturbances& disturbances = options.disturbances;
    with(root, "seed", [&](const ConfigValue& v) {
      disturbances.seed = static_cast<std::uint64_t>(v.count(0, INT64_MAX));
    });
    each(root, "slow_devices",
         [&](const ConfigValue& v) { disturbances.slow_devices.push_back(slow_device(v)); });
    each(root, "links", [&](const ConfigValue& v) { add_spells(v); });
    disturbances.capacity = capacity_changes();
    each(root, "background",
         [&](const ConfigValue& v) { disturbances.background.push_back(background(v)); });
    return scenario;
  }

 private:
  using Use = std::function<void(const ConfigValue&)>;

  static void with(const ConfigValue& map, std::string_view key, const Use& use) {
    if (const ConfigValue* value = map.find(key)) {
      use(*value);
    }
  }
  static void each(const ConfigValue& map, std::string_view key, const Use& use) {
    if (const ConfigValue* list = map.find(key)) {
      std::for_each(list->elements().begin(), list->elements().end(), use);
    }
  }
  /// Two jobs of one plan file, say, have different names in tables.
  void add_job(const ConfigValue& value, std::vector<JobPlace>& jobs) const {
    JobPlace job = read_job(value, topology_);
    const std::string own_name = job.name;
    const auto is_taken = [&] {
      return std::any_of(jobs.begin(), jobs.end(),
                         [&](const JobPlace& other) { return other.name == job.name; });
    };
    for (int number = 2; is_taken(); ++number) {
      job.name = fmt::format("{} {}", own_name, number);
    }
    jobs.push_back(std::move(job));
  }
  static int number(const ConfigValue& value, int least, int most) {
    return static_cast<int>(value.count(least, most));
  }
  static NetworkLevel level(const ConfigValue& value) {
    if (value.text() == "flow") {
      return NetworkLevel::kFlow;
    }
    return value.text() == "packet" ? NetworkLevel::kPacket
                                    : (value.fail("flow or packet"), NetworkLevel::kFlow);
  }
  static Multipath multipath(const ConfigValue& value) {
    const std::optional<Multipath> found = parse_multipath(value.text());
    return found ? *found : (value.fail("pinned, ecmp or spray"), Multipath::kPinned);
  }
  static DataLoading loading(const ConfigValue& value) {
    value.allow_only({"batch", "prefetch"});
    DataLoading loading{.batch = value.require("batch").duration()};
    with(value, "prefetch",
         [&](const ConfigValue& v) { loading.prefetch = number(v, 0, kMostPrefetch); });
    return loading;
  }
  Rank rank(const ConfigValue& value) const {
    return Rank(static_cast<std::size_t>(
        value.count(0, static_cast<std::int64_t>(topology_.rank_count()) - 1)));
  }

  SlowDevice slow_device(const ConfigValue& value) const {
    value.allow_only({"ranks", "factor", "sigma", "first_step", "last_step"});
    SlowDevice slow;
    each(value, "ranks", [&](const ConfigValue& v) { slow.ranks.push_back(rank(v)); });
    if (slow.ranks.empty() && value.find("ranks") != nullptr) {
      value.require("ranks").fail("no rank", "one at least, or no 'ranks' for all of them");
    }
    with(value, "factor",
         [&](const ConfigValue& v) { slow.factor = v.ratio(1 / kLargestFactor, kLargestFactor); });
    with(value, "sigma", [&](const ConfigValue& v) { slow.sigma = v.ratio(0, 5); });
    with(value, "first_step",
         [&](const ConfigValue& v) { slow.first_step = number(v, 0, kMostSteps); });
    with(value, "last_step",
         [&](const ConfigValue& v) { slow.last_step = number(v, slow.first_step, kMostSteps); });
    return slow;
  }

  BackgroundTraffic background(const ConfigValue& value) const {
    value.allow_only({"from", "to", "message", "start", "every", "rate"});
    BackgroundTraffic traffic{.src = rank(value.require("from")),
                              .dst = rank(value.require("to")),
                              .message = value.require("message").bytes()};
    if (traffic.src == traffic.dst) {
      value.fail("a rank that sends to itself", "two ranks");
    }
    with(value, "start", [&](const ConfigValue& v) { traffic.start = v.duration(); });
    with(value, "every", [&](const ConfigValue& v) { traffic.every = v.duration(); });
    with(value, "rate", [&](const ConfigValue& v) { traffic.cap = v.bandwidth(); });
    return traffic;
  }

  std::vector<LinkId> links(const ConfigValue& value) const {
    const ConfigValue* tier = value.find("tier");
    if (tier != nullptr && value.find("link") != nullptr) {
      value.fail("both link and tier", "one of them");
    }
    const ConfigValue& name = tier != nullptr ? *tier : value.require("link");
    std::vector<LinkId> found;
    if (tier == nullptr) {
      found = topology::links_named(topology_, name.text());
    }
    for (std::size_t i = 0; tier != nullptr && i < topology_.link_count(); ++i) {
      if (topology_.link(LinkId(i)).tier == name.text()) {
        found.emplace_back(i);
      }
    }
    if (found.empty()) {
      name.fail(fmt::format("'{}'", name.text()),
                tier != nullptr ? "a tier of the cluster, see rackrail topology show"
                : topology_.link_count() == 0
                    ? "no 'links': the cluster has none"
                    : "a link of the cluster, such as " + topology_.link_name(LinkId(0)));
    }
    return found;
  }

  void add_spells(const ConfigValue& value) {
    value.allow_only({"link", "tier", "from", "until", "bandwidth", "cut", "flapping", "capacity"});
    Duration from;
    std::optional<Duration> until;
    with(value, "from", [&](const ConfigValue& v) { from = v.duration(); });
    with(value, "until", [&](const ConfigValue& v) {
      until = v.duration();
      if (*until <= from) {
        v.fail(to_string(*until), "a time after " + to_string(from));
      }
    });
    const bool is_cut = value.find("cut") != nullptr && value.require("cut").flag();
    const ConfigValue* flapping = value.find("flapping");
    const ConfigValue* file = value.find("capacity");
    const ConfigValue* bandwidth = value.find("bandwidth");
    if ((is_cut ? 1 : 0) + (flapping != nullptr ? 1 : 0) + (file != nullptr ? 1 : 0) +
            (bandwidth != nullptr ? 1 : 0) !=
        1) {
      value.fail("another number of them", "one of bandwidth, cut, flapping, capacity");
    }
    if (file != nullptr && (until || value.find("from") != nullptr)) {
      value.fail("from or until beside capacity", "times in the file alone");
    }
    for (const LinkId link : links(value)) {
      if (flapping != nullptr) {
        add_flapping(*flapping, link, from, until);
      } else if (file != nullptr) {
        add_file(*file, link);
      } else {
        spells_.push_back({link, from, until, is_cut ? Bandwidth(0) : bandwidth->bandwidth()});
      }
    }
  }

  void add_flapping(const ConfigValue& value, LinkId link, Duration from,
                    std::optional<Duration> until) {
    value.allow_only({"every", "for"});
    const Duration every = value.require("every").duration();
    const Duration down = value.require("for").duration();
    if (!until) {
      value.fail("no end", "'until' beside it");
    }
    if (down >= every) {
      value.fail("down for " + to_string(down), "less than every " + to_string(every));
    }
    for (Duration at = from; at < *until; at += every) {
      if (spells_.size() > kMostSpells) {
        value.fail("too many changes", fmt::format("at most {}", kMostSpells));
      }
      spells_.push_back({link, at, std::min(at + down, *until), Bandwidth(0)});
    }
  }

  void add_file(const ConfigValue& value, LinkId link) {
    const std::string file = (folder_ / value.name()).string();
    std::string content = read_file(file);
    if (content.starts_with(kByteOrderMark)) {
      content.erase(0, kByteOrderMark.size());
    }
    std::istringstream lines(content);
    std::string line;
    std::optional<Spell> last;
    for (int number = 1; std::getline(lines, line); ++number) {
      const std::string_view text = trimmed(line);  // of a carriage return, too
      const std::size_t comma = text.find(',');
      const std::string time(trimmed(text.substr(0, comma)));
      const std::string rate(comma == std::string_view::npos ? ""
                                                             : trimmed(text.substr(comma + 1)));
      if (text.empty() || text.front() == '#' || (time == "time" && rate == "bandwidth")) {
        continue;
      }
      try {
        if (comma == std::string::npos) {
          throw ConfigError(ErrorContext{"", "", fmt::format("'{}'", text), "time,bandwidth"});
        }
        const Duration at = parse_duration(time);
        if (last && at < last->from) {
          throw ConfigError(
              ErrorContext{"", "", to_string(at), "a time not before " + to_string(last->from)});
        }
        if (last) {
          last->until = at;
          spells_.push_back(*last);
        }
        last = {link, at, std::nullopt, rate == "0" ? Bandwidth(0) : parse_bandwidth(rate)};
      } catch (const ConfigError& e) {
        throw ConfigError(ErrorContext{file, fmt::format("line {}", number), e.context().found,
                                       e.context().expected});
      }
    }
    if (!last) {
      throw ConfigError(ErrorContext{file, "", "no row", "'time,bandwidth' rows"});
    }
    spells_.push_back(*last);
  }

  /// Of spells at the same time the slowest counts; where there is none, the link's own rate.
  std::vector<CapacityChange> capacity_changes() const {
    std::map<LinkId, std::multimap<Duration, std::pair<bool, Bandwidth>>> events;  // begins, rate
    for (const Spell& spell : spells_) {
      events[spell.link].emplace(spell.from, std::pair(true, spell.rate));
      if (spell.until) {
        events[spell.link].emplace(*spell.until, std::pair(false, spell.rate));
      }
    }
    std::vector<CapacityChange> changes;
    for (const auto& [link, of_link] : events) {
      std::multiset<Bandwidth> rates;
      Bandwidth now = topology_.link(link).bandwidth;
      for (auto event = of_link.begin(); event != of_link.end();) {
        const Duration at = event->first;
        for (; event != of_link.end() && event->first == at; ++event) {
          const auto& [begins, rate] = event->second;
          if (begins) {
            rates.insert(rate);
          } else {
            rates.erase(rates.find(rate));
          }
        }
        const Bandwidth then = rates.empty() ? topology_.link(link).bandwidth : *rates.begin();
        if (then != now) {
          changes.push_back({at, link, then});
          now = then;
        }
      }
    }
    std::stable_sort(changes.begin(), changes.end(),
                     [](const CapacityChange& a, const CapacityChange& b) { return a.at < b.at; });
    return changes;
  }

  /// Time in which a link has a rate that is not its own.
  struct Spell {
    LinkId link;
    Duration from;
    std::optional<Duration> until;
    Bandwidth rate;
  };

  std::filesystem::path folder_;
  const topology::Topology& topology_;
  std::vector<Spell> spells_;
};

}  // namespace

Scenario parse_scenario(const std::string& file, const std::string& content,
                        const topology::Topology& topology) {
  return ScenarioReader(file, topology).read(ConfigValue::parse(file, content));
}

Scenario read_scenario(const std::string& file, const topology::Topology& topology) {
  return parse_scenario(file, read_file(file), topology);
}

std::vector<std::filesystem::path> files_of_scenario(const std::string& file,
                                                     const std::string& content) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::vector<std::filesystem::path> files;
  const auto add = [&](const ConfigValue& entry, std::string_view key) {
    const ConfigValue* name = entry.find(key);
    if (name != nullptr && std::filesystem::is_regular_file(folder / name->name())) {
      files.push_back(folder / name->name());
    }
  };
  const ConfigValue root = ConfigValue::parse(file, content);
  if (const ConfigValue* links = root.find("links")) {
    for (const ConfigValue& entry : links->elements()) {
      add(entry, "capacity");
    }
  }
  if (const ConfigValue* jobs = root.find("jobs")) {
    for (const ConfigValue& entry : jobs->elements()) {
      add(entry, "plan");
      add(entry, "cluster");
      add(entry, "workload");
    }
  }
  return files;
}

}  // namespace rackrail::sim
