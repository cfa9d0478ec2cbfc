#include "cli/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace rackrail::cli::html_test {
namespace {

using topology::NodeKind;
using topology::Topology;

// The element that is closed wrongly or left open; empty when every element is closed in order.
// Good enough for what we write ourselves: no comments, no '>' in attributes.
std::string first_unbalanced(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    if (end == std::string::npos) {
      return html.substr(at);
    }
    const std::string tag = html.substr(at + 1, end - at - 1);
    const bool closes = tag.starts_with('/');
    const std::string name =
        tag.substr(closes ? 1 : 0, tag.find_first_of(" /", 1) - (closes ? 1 : 0));
    if (tag.starts_with('!') || tag.ends_with('/') || name == "meta") {
      continue;
    }
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return tag;
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back();
}

// Of the first attribute of that name from `at` on; commas and spaces lie between them.
std::vector<double> numbers_in(const std::string& svg, const std::string& attribute,
                               std::size_t at = 0) {
  const std::size_t begin = svg.find(" " + attribute + "=\"", at) + attribute.size() + 3;
  std::string text = svg.substr(begin, svg.find('"', begin) - begin);
  std::ranges::replace(text, ',', ' ');
  std::istringstream words(text);
  return {std::istream_iterator<double>(words), {}};
}

// One of each rectangle.
std::vector<double> of_rects(const std::string& svg, const std::string& attribute) {
  std::vector<double> values;
  for (std::size_t at = svg.find("<rect"); at != std::string::npos;
       at = svg.find("<rect", at + 1)) {
    values.push_back(numbers_in(svg, attribute, at).at(0));
  }
  return values;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++n;
  }
  return n;
}

Topology hosts_around_a_switch(std::size_t hosts) {
  Topology topology("star");
  const NodeId tor = topology.add_node({.name = "tor<&>", .kind = NodeKind::kTor});
  for (std::size_t i = 0; i < hosts; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId nic =
        topology.add_node({.name = name + "-nic", .kind = NodeKind::kNic, .host = name});
    const NodeId gpu =
        topology.add_node({.name = name + "-gpu", .kind = NodeKind::kGpu, .host = name});
    topology.add_rank(gpu);
    topology.add_duplex_link({.from = gpu, .to = nic, .bandwidth = 32_GBps});
    topology.add_duplex_link({.from = nic, .to = tor, .bandwidth = 12_GBps});
  }
  return topology;
}

TEST_CASE("text is escaped wherever HTML would read it") {
  CHECK(escape_html("a < b & \"c\" > d") == "a &lt; b &amp; &quot;c&quot; &gt; d");
  CHECK(escape_html("ring → tree") == "ring → tree");
}

TEST_CASE("a table's first row is its head, numbers are set to the right") {
  const std::string html =
      html_table({{"name", "time"}, {"<script>", "12 ms"}, {"b", "+1.0 %"}, {"c", "none"}});
  CHECK(first_unbalanced(html).empty());
  CHECK(count(html, "<tr>") == 4);
  CHECK(count(html, "<th>") == 2);
  CHECK(count(html, "class=\"n\"") == 2);
  CHECK(html.find("<script>") == std::string::npos);
}

TEST_CASE("a page needs nothing but itself") {
  const std::string page = html_page("a & b", html_table({{"x"}, {"1"}}));
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(first_unbalanced(page).empty());
  CHECK(page.find("<title>a &amp; b</title>") != std::string::npos);
  for (const char* outside : {"http:", "https:", "src=", "url(", "@import", "<script", "<link"}) {
    INFO(outside);
    CHECK(page.find(outside) == std::string::npos);
  }
}

TEST_CASE("a cluster is drawn with one box per machine and network switch") {
  const std::string svg = topology_svg(hosts_around_a_switch(3), {});
  CHECK(first_unbalanced(svg).empty());
  CHECK(count(svg, "<rect") == 4);
  CHECK(count(svg, "<line") == 3);  // insides of machines are not drawn
  CHECK(svg.find("tor&lt;&amp;&gt;") != std::string::npos);
  CHECK(svg.find("host1: 1 rank") != std::string::npos);
}

TEST_CASE("a link between machines shows the busier of its directions") {
  const Topology topology = hosts_around_a_switch(1);
  // Links 2 and 3 are the cable between NIC and switch.
  const std::string svg =
      topology_svg(topology, {{LinkId(2), Bytes(1), 0.25}, {LinkId(3), Bytes(1), 0.75}});
  CHECK(svg.find("75 % used") != std::string::npos);
  CHECK(svg.find("25 % used") == std::string::npos);
}

TEST_CASE("a cluster of many machines says how many are not drawn") {
  const std::string svg = topology_svg(hosts_around_a_switch(100), {});
  CHECK(first_unbalanced(svg).empty());
  CHECK(count(svg, "<rect") == 33);
  CHECK(svg.find("and 68 more hosts") != std::string::npos);
}

TEST_CASE("a timeline has a row per track and its events in place") {
  const std::string svg = timeline_svg({{"forward & more", "rank 0 compute", 0_us, 40_us},
                                        {"bucket 0", "rank 0 network", 40_us, 100_us}},
                                       100_us);
  CHECK(first_unbalanced(svg).empty());
  CHECK(count(svg, "<rect") == 2);
  CHECK(svg.find("forward &amp; more: ") != std::string::npos);
  const std::vector<double> x = of_rects(svg, "x");
  const std::vector<double> y = of_rects(svg, "y");
  const std::vector<double> width = of_rects(svg, "width");
  CHECK(width[0] / width[1] == Approx(40.0 / 60));
  CHECK(x[1] == Approx(x[0] + width[0]));
  CHECK(y[0] < y[1]);
}

TEST_CASE("a timeline of many tracks or none stays readable") {
  std::vector<plan::TimelineEvent> events;
  for (int rank = 0; rank < 100; ++rank) {
    events.push_back({"forward", fmt::format("rank {:03} compute", rank), 0_us, 1_us});
  }
  const std::string many = timeline_svg(events, 1_us);
  CHECK(first_unbalanced(many).empty());
  CHECK(count(many, "<rect") == 24);
  CHECK(many.find("and 76 more tracks") != std::string::npos);
  CHECK(first_unbalanced(timeline_svg({}, Duration())).empty());
}

TEST_CASE("bars are as long as their times and the chosen one stands out") {
  const std::string svg = bars_svg({{"bound", 50_ms}, {"this <plan>", 100_ms, true}});
  CHECK(first_unbalanced(svg).empty());
  const std::vector<double> width = of_rects(svg, "width");
  REQUIRE(width.size() == 2);
  CHECK(width[1] == Approx(2 * width[0]));
  CHECK(count(svg, "font-weight=\"bold\"") == 1);
  CHECK(svg.find("this &lt;plan&gt;") != std::string::npos);
}

TEST_CASE("a curve goes through all values, from the largest at the top to the smallest") {
  const std::string svg = curve_svg({3, 2, 1}, "loss");
  CHECK(first_unbalanced(svg).empty());
  const std::vector<double> points = numbers_in(svg, "points");
  REQUIRE(points.size() == 6);  // x and y of three
  CHECK(points[2] - points[0] == Approx(points[4] - points[2]));
  CHECK(points[3] - points[1] == Approx(points[5] - points[3]));
  CHECK(points[0] < points[2]);
  CHECK(points[1] < points[3]);  // downwards
  CHECK(curve_svg({1}, "loss").empty());
  CHECK(first_unbalanced(curve_svg({5, 5, 5}, "flat")).empty());
}

TEST_CASE("a curve leaves out values that are no numbers") {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const std::string svg =
      curve_svg({kNone, 2, std::numeric_limits<double>::infinity(), 1}, "diverged");
  CHECK(first_unbalanced(svg).empty());
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  CHECK(numbers_in(svg, "points").size() == 4);  // x and y of two
}

}  // namespace
}  // namespace rackrail::cli::html_test
