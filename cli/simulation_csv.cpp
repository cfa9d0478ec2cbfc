#include "cli/simulation_csv.hpp"

#include <fmt/format.h>

#include <iterator>

namespace rackrail::cli {

std::string flows_csv(const std::vector<sim::FlowRecord>& flows,
                      const topology::Topology& topology) {
  std::string text = "bucket,slice,src,dst,bytes,start_s,sent_s,delivered_s,links,shares\n";
  for (const sim::FlowRecord& flow : flows) {
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{},{:.12f},{:.12f},{:.12f},", flow.bucket,
                   flow.slice, flow.src.value(), flow.dst.value(), flow.bytes.count(),
                   flow.start.seconds(), flow.sent.seconds(), flow.delivered.seconds());
    for (std::size_t i = 0; i < flow.links.size(); ++i) {
      text += i > 0 ? " " : "";
      text += topology.link_name(flow.links[i]);
    }
    text += ',';
    for (std::size_t i = 0; i < flow.shares.size(); ++i) {
      fmt::format_to(std::back_inserter(text), "{}{:.6g}", i > 0 ? " " : "", flow.shares[i]);
    }
    text += '\n';
  }
  return text;
}

std::string links_csv(const sim::LinkTimeline& timeline, const topology::Topology& topology) {
  std::string text = "time_s";
  for (const LinkId link : timeline.links) {
    text += "," + topology.link_name(link);
  }
  for (std::size_t j = 0; !timeline.background.empty() && j < timeline.links.size(); ++j) {
    text += "," + topology.link_name(timeline.links[j]) + " (others)";
  }
  text += '\n';
  const std::size_t links = timeline.links.size();
  const std::size_t bins = links == 0 ? 0 : timeline.utilization.size() / links;
  for (std::size_t i = 0; i < bins; ++i) {
    fmt::format_to(std::back_inserter(text), "{:.12f}",
                   (timeline.bin * static_cast<std::int64_t>(i)).seconds());
    for (const std::vector<double>* of : {&timeline.utilization, &timeline.background}) {
      for (std::size_t j = 0; !of->empty() && j < links; ++j) {
        fmt::format_to(std::back_inserter(text), ",{:.6g}", (*of)[i * links + j]);
      }
    }
    text += '\n';
  }
  return text;
}

}  // namespace rackrail::cli
