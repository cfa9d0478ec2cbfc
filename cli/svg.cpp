// The drawings of cli/html.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "cli/html.hpp"

namespace rackrail::cli {

namespace {

using topology::NodeKind;

constexpr int kPageWidth = 1040;
constexpr int kLayerHeight = 84;
constexpr std::size_t kMostHostsDrawn = 32;

// White-blue-orange-red over 0..1.
std::string heat(double share) {
  struct Stop {
    double at;
    std::array<int, 3> rgb;
  };
  constexpr std::array kStops = {Stop{0.0, {196, 205, 214}}, Stop{0.35, {88, 148, 205}},
                                 Stop{0.7, {240, 173, 78}}, Stop{1.0, {204, 51, 51}}};
  const double x = std::clamp(share, 0.0, 1.0);
  std::size_t i = 0;
  while (i + 2 < kStops.size() && x > kStops[i + 1].at) {
    ++i;
  }
  const double t = (x - kStops[i].at) / (kStops[i + 1].at - kStops[i].at);
  const auto mix = [&](std::size_t c) {
    return static_cast<int>(kStops[i].rgb[c] + t * (kStops[i + 1].rgb[c] - kStops[i].rgb[c]));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2));
}

int layer_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kCore:
      return 0;
    case NodeKind::kSpine:
      return 1;
    case NodeKind::kTor:
    case NodeKind::kSwitch:
      return 2;
    default:
      return 3;
  }
}

struct BoxPlace {
  double x = 0;
  double y = 0;
};

// Everything inside a machine is drawn as that machine's box; network switches stand for
// themselves.
std::string box_of(const topology::Node& node) { return node.host.empty() ? node.name : node.host; }

}  // namespace

std::string topology_svg(const topology::Topology& topology,
                         const std::vector<sim::LinkUse>& links) {
  std::map<int, std::vector<std::string>> layers;
  std::set<std::string> known;
  std::map<std::string, int> ranks;
  std::set<std::string> hidden;
  for (std::size_t i = 0; i < topology.node_count(); ++i) {
    const topology::Node& node = topology.node(NodeId(i));
    const std::string box = box_of(node);
    const int layer = node.host.empty() ? layer_of(node.kind) : 3;
    ranks[box] += topology.rank_of(NodeId(i)).has_value() ? 1 : 0;
    if (known.contains(box)) {
      continue;
    }
    if (layer == 3 && layers[3].size() >= kMostHostsDrawn) {
      hidden.insert(box);
      continue;
    }
    known.insert(box);
    layers[layer].push_back(box);
  }
  std::erase_if(layers, [](const auto& layer) { return layer.second.empty(); });
  std::map<std::string, BoxPlace> places;
  int row = 0;
  for (const auto& [layer, boxes] : layers) {
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      places[boxes[i]] = {
          kPageWidth * (static_cast<double>(i) + 0.5) / static_cast<double>(boxes.size()),
          30.0 + row * kLayerHeight};
    }
    ++row;
  }
  // The busier direction of the links between two boxes decides the colour.
  std::map<std::pair<std::string, std::string>, double> busiest;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const topology::Link& link = topology.link(LinkId(i));
    std::string a = box_of(topology.node(link.from));
    std::string b = box_of(topology.node(link.to));
    if (a != b && places.contains(a) && places.contains(b)) {
      busiest[std::minmax(a, b)] += 0;
    }
  }
  for (const sim::LinkUse& use : links) {
    const topology::Link& link = topology.link(use.link);
    std::string a = box_of(topology.node(link.from));
    std::string b = box_of(topology.node(link.to));
    if (const auto it = busiest.find(std::minmax(a, b)); it != busiest.end()) {
      it->second = std::max(it->second, use.utilization);
    }
  }
  const int height = 60 + (row - 1) * kLayerHeight + (hidden.empty() ? 0 : 24);
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">", kPageWidth, height);
  for (const auto& [ends, utilization] : busiest) {
    const BoxPlace& a = places.at(ends.first);
    const BoxPlace& b = places.at(ends.second);
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-width=\"{:.1f}\"><title>{} – {}: {:.0f} % used</title></line>",
        a.x, a.y, b.x, b.y, heat(utilization), 1.5 + 3 * std::min(1.0, utilization),
        escape_html(ends.first), escape_html(ends.second), utilization * 100);
  }
  for (const auto& [layer, boxes] : layers) {
    const double width = std::min(110.0, kPageWidth / static_cast<double>(boxes.size()) - 6.0);
    for (const std::string& box : boxes) {
      const BoxPlace& place = places.at(box);
      const bool roomy = width > 40;
      const std::string label = roomy ? box : "";
      const int inside = ranks[box];
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"34\" rx=\"6\" fill=\"{}\" "
          "stroke=\"#93a3b3\"><title>{}: {}</title></rect>"
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
          place.x - width / 2, place.y - 17, std::max(6.0, width), layer == 3 ? "#eaf2fb" : "#fff",
          escape_html(box), counted(inside, "rank"), place.x, place.y + 4, escape_html(label));
    }
  }
  if (!hidden.empty()) {
    svg += fmt::format("<text class=\"soft\" x=\"4\" y=\"{}\">and {} more hosts</text>", height - 6,
                       hidden.size());
  }
  return svg + "</svg>";
}

std::string timeline_svg(const std::vector<plan::TimelineEvent>& events, Duration horizon) {
  constexpr int kLabel = 150;
  constexpr int kRow = 20;
  constexpr int kTicks = 5;
  constexpr std::size_t kMostTracks = 24;
  std::map<std::string, int> tracks;
  for (const plan::TimelineEvent& event : events) {
    tracks.emplace(event.track, 0);
  }
  int row = 0;
  const std::size_t all = tracks.size();
  for (auto it = tracks.begin(); it != tracks.end();) {
    if (static_cast<std::size_t>(row) >= kMostTracks) {
      it = tracks.erase(it);
    } else {
      it->second = row++;
      ++it;
    }
  }
  const int height = row * kRow + 40;
  const double scale =
      (kPageWidth - kLabel) / std::max(1.0, static_cast<double>(horizon.picoseconds()));
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">", kPageWidth, height);
  for (int i = 0; i <= kTicks; ++i) {
    const double x = kLabel + (kPageWidth - kLabel) * static_cast<double>(i) / kTicks;
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1}\" stroke=\"#dde3e9\"/>"
        "<text class=\"soft\" x=\"{0:.1f}\" y=\"{2}\" text-anchor=\"{3}\">{4}</text>",
        x, row * kRow, row * kRow + 16, i == kTicks ? "end" : "middle",
        rackrail::to_string(scaled(horizon, static_cast<double>(i) / kTicks)));
  }
  for (const auto& [track, index] : tracks) {
    svg += fmt::format("<text x=\"0\" y=\"{}\">{}</text>", index * kRow + 14, escape_html(track));
  }
  const auto colour = [](const std::string& what, const std::string& track) {
    if (track.find("compute") != std::string::npos) {
      return what.find("forward") != std::string::npos ? "#9cc3a5" : "#5f9e6e";
    }
    if (what.find("code") != std::string::npos || track.find("codec") != std::string::npos) {
      return "#b07cc6";
    }
    return track.find("reduce") != std::string::npos ? "#e0a458" : "#4a87c0";
  };
  // Pieces below half a pixel that touch are drawn as one: pages of large plans stay small.
  std::map<std::string, double> drawn_to;
  for (const plan::TimelineEvent& event : events) {
    const auto it = tracks.find(event.track);
    if (it == tracks.end()) {
      continue;
    }
    const double x = kLabel + static_cast<double>(event.start.picoseconds()) * scale;
    const double w = static_cast<double>((event.end - event.start).picoseconds()) * scale;
    double& to = drawn_to[event.track];
    if (x + w < to + 0.5) {
      continue;
    }
    to = x + w;
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{}: {} for "
        "{}</title></rect>",
        x, it->second * kRow + 3, std::max(0.6, w), kRow - 6, colour(event.what, event.track),
        escape_html(event.what), rackrail::to_string(event.start),
        rackrail::to_string(event.end - event.start));
  }
  if (all > tracks.size()) {
    svg += fmt::format("<text class=\"soft\" x=\"0\" y=\"{}\">and {} more tracks</text>",
                       row * kRow + 34, all - tracks.size());
  }
  return svg + "</svg>";
}

std::string bars_svg(const std::vector<Bar>& bars) {
  constexpr int kLabel = 260;
  constexpr int kValue = 110;
  constexpr int kRow = 30;
  std::int64_t longest = 1;
  for (const Bar& bar : bars) {
    longest = std::max(longest, bar.time.picoseconds());
  }
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">", kPageWidth,
                                static_cast<int>(bars.size()) * kRow);
  int y = 0;
  for (const Bar& bar : bars) {
    const double w = (kPageWidth - kLabel - kValue) * static_cast<double>(bar.time.picoseconds()) /
                     static_cast<double>(longest);
    svg += fmt::format(
        "<text x=\"0\" y=\"{}\"{}>{}</text><rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" "
        "rx=\"3\" fill=\"{}\"/><text x=\"{:.1f}\" y=\"{}\">{}</text>",
        y + 19, bar.emphasised ? " font-weight=\"bold\"" : "", escape_html(bar.label), kLabel,
        y + 5, w, kRow - 10, bar.emphasised ? "#2563a8" : "#b9c6d3", kLabel + w + 8, y + 19,
        rackrail::to_string(bar.time));
    y += kRow;
  }
  return svg + "</svg>";
}

std::string curve_svg(const std::vector<double>& values, const std::string& label) {
  constexpr int kHeight = 200;
  constexpr int kMargin = 46;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  std::size_t shown = 0;
  for (const double value : values) {
    if (std::isfinite(value)) {
      low = std::min(low, value);
      high = std::max(high, value);
      ++shown;
    }
  }
  if (shown < 2) {
    return "";
  }
  const double range = std::max(1e-12, high - low);
  std::string points;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      continue;
    }
    const double x = kMargin + (kPageWidth - kMargin) * static_cast<double>(i) /
                                   static_cast<double>(values.size() - 1);
    const double y = 8 + (kHeight - 36) * (1 - (values[i] - low) / range);
    points += fmt::format("{:.1f},{:.1f} ", x, y);
  }
  return fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\"><text class=\"soft\" x=\"0\" y=\"16\">{:.3g}</text>"
      "<text class=\"soft\" x=\"0\" y=\"{}\">{:.3g}</text><polyline points=\"{}\" fill=\"none\" "
      "stroke=\"#2563a8\" stroke-width=\"2\"/><text class=\"soft\" x=\"{}\" "
      "y=\"{}\">{}</text></svg>",
      kPageWidth, kHeight, high, kHeight - 26, low, points, kMargin, kHeight - 6,
      escape_html(label));
}

}  // namespace rackrail::cli
