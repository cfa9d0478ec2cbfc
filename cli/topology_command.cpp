#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/simulation_notes.hpp"
#include "cli/table.hpp"
#include "planner/packing/forest.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"
#include "topology/widening.hpp"

namespace rackrail::cli {

namespace {

constexpr double kWhole = 1 - 1e-9;  // of a bound: nothing is left to look for

/// Of those that have a name.
std::size_t rack_count(const topology::Topology& cluster) {
  std::set<std::string> names;
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    names.insert(cluster.node(cluster.node_of(Rank(r))).rack);
  }
  names.erase("");
  return names.size();
}

/// Links of one tier name: how many, and what they carry together.
struct TierSummary {
  std::size_t links = 0;
  Bandwidth bandwidth;
  Bandwidth slowest;
  LinkId slowest_link;  ///< the first of them
  Duration latency;
};

std::map<std::string, TierSummary> tiers_of(const topology::Topology& cluster) {
  std::map<std::string, TierSummary> tiers;
  for (std::size_t i = 0; i < cluster.link_count(); ++i) {
    const topology::Link& link = cluster.link(LinkId(i));
    TierSummary& tier = tiers[link.tier];
    if (tier.links == 0 || link.bandwidth < tier.slowest) {
      tier.slowest = link.bandwidth;
      tier.slowest_link = LinkId(i);
    }
    tier.latency = std::max(tier.latency, link.latency);
    tier.bandwidth = tier.bandwidth + link.bandwidth;
    ++tier.links;
  }
  return tiers;
}

/// Rates of the ranks whose messages are staged in host memory (Node::host_staging), and how many
/// have each.
std::map<Bandwidth, std::size_t> staging_of(const topology::Topology& cluster) {
  std::map<Bandwidth, std::size_t> ranks;
  for (std::uint32_t r = 0; r < cluster.rank_count(); ++r) {
    const Bandwidth rate = cluster.node(cluster.node_of(Rank(r))).host_staging;
    if (rate > Bandwidth()) {
      ++ranks[rate];
    }
  }
  return ranks;
}

void run_show(Session& session, const ClusterOptions& options) {
  const topology::Topology cluster = options.load(session);
  const auto tiers = tiers_of(cluster);
  const std::vector<std::string> notes = say_notes(session, cluster, {});
  if (session.json) {
    nlohmann::json list = nlohmann::json::array();
    nlohmann::json slowest = nlohmann::json::object();  // by tier
    for (const auto& [name, tier] : tiers) {
      list.push_back({{"name", name},
                      {"links", tier.links},
                      {"bandwidth_Bps", tier.bandwidth.bytes_per_second()}});
      slowest[name] = {{"link", cluster.link_name(tier.slowest_link)},
                       {"bandwidth_Bps", tier.slowest.bytes_per_second()}};
    }
    nlohmann::json staging = nlohmann::json::array();
    for (const auto& [rate, ranks] : staging_of(cluster)) {
      staging.push_back({{"ranks", ranks}, {"bandwidth_Bps", rate.bytes_per_second()}});
    }
    session.print_json({{"name", cluster.name()},
                        {"ranks", cluster.rank_count()},
                        {"vertices", cluster.node_count()},
                        {"links", cluster.link_count()},
                        {"hosts", ranks_by_host(cluster).size()},
                        {"racks", rack_count(cluster)},
                        {"host_staging", staging},
                        {"tiers", list},
                        {"slowest_links", slowest},
                        {"notes", notes}});
    return;
  }
  const std::size_t ranks = cluster.rank_count();
  const std::size_t hosts = ranks_by_host(cluster).size();
  fmt::print("{}: {} {} on {} {}, {} vertices, {} links\n\n", cluster.name(), ranks,
             ranks == 1 ? "rank" : "ranks", hosts, hosts == 1 ? "host" : "hosts",
             cluster.node_count(), cluster.link_count());
  Table table({{"tier"},
               {"links", Align::kRight},
               {"slowest link", Align::kRight},
               {"all together", Align::kRight},
               {"latency", Align::kRight},
               {"slowest of them"}});
  for (const auto& [name, tier] : tiers) {
    table.add_row({name, std::to_string(tier.links), to_string(tier.slowest),
                   to_string(tier.bandwidth), to_string(tier.latency),
                   cluster.link_name(tier.slowest_link)});
  }
  fmt::print("{}", table.to_string());
  for (const auto& [rate, staged] : staging_of(cluster)) {
    fmt::print(
        "\n{} of {} ranks copy what goes to other hosts to host memory first, at {} each way\n",
        staged, ranks, to_string(rate));
  }
}

void run_convert(Session& session, const ClusterOptions& options, const std::string& to,
                 const std::string& output) {
  const topology::Topology cluster = options.load(session);
  session.add_output(output);
  if (to == "edge-list") {
    for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
      if (cluster.processor_of(Rank(r))) {
        session.note("note: an edge list does not say which ranks share the cores of a machine");
        break;
      }
    }
  }
  const std::string text = to == "edge-list"  ? topology::to_edge_list(cluster)
                           : to == "graphviz" ? topology::to_graphviz(cluster)
                                              : topology::to_flat_yaml(cluster);
  if (!output.empty()) {
    write_file_atomically(output, text);
  }
  if (session.json) {
    nlohmann::json result = {{"format", to}, {"bytes", text.size()}};
    result[output.empty() ? "text" : "output"] = output.empty() ? text : output;
    session.print_json(result);
  } else if (output.empty()) {
    fmt::print("{}", text);
  } else {
    fmt::print("wrote {}\n", output);
  }
}

std::vector<std::string> names_of(const topology::Topology& cluster,
                                  const std::vector<LinkId>& links) {
  std::vector<std::string> names;
  for (const LinkId link : links) {
    names.push_back(cluster.link_name(link));
  }
  return names;
}

/// How many there are, and the first few names.
std::string listed(const topology::Topology& cluster, const std::vector<LinkId>& links) {
  constexpr std::size_t kShown = 4;
  const std::vector<std::string> names = names_of(cluster, links);
  const std::size_t shown = std::min(kShown, names.size());
  return fmt::format(
      "{} links ({}{})", names.size(),
      fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      names.size() > shown ? ", …" : "");
}

struct Bounds {
  topology::AllGatherBound gather;
  topology::AllGatherBound scatter;
  topology::AllReduceBound reduce;
};

Bounds bounds_of(const Session& session, const topology::Topology& cluster, const std::string& name,
                 bool in_network) {
  ProgressBar bar("bounds", session.progress_elsewhere());
  Bounds bounds;
  bar.update(0, "all-gather");
  bounds.gather = named(name, "", [&] { return topology::allgather_optimum(cluster, in_network); });
  bar.update(1.0 / 3, "reduce-scatter");
  bounds.scatter = topology::reducescatter_optimum(cluster, in_network);
  bar.update(2.0 / 3, "all-reduce");
  bounds.reduce = topology::joint_allreduce_bound(cluster, in_network);
  return bounds;
}

/// What a bound becomes when a link that binds is twice as wide, both ways.
struct Widened {
  std::string collective;
  std::string link;
  Bandwidth before;
  Bandwidth algbw;
  /// Where that is nothing: what several of them do together, if anything.
  std::optional<topology::JointWidening> together{};
};

/// `links` are those of the cut that binds, or one where no single cut does.
Widened widening_of(const char* collective, const topology::Topology& cluster,
                    const std::vector<LinkId>& links, Bandwidth before,
                    const topology::BoundOf& bound) {
  const topology::LinkWidening best = topology::best_widening(cluster, links, before, bound);
  Widened result{collective, cluster.link_name(best.link), before, best.algbw};
  if (best.algbw <= before) {
    result.together = topology::joint_widening(cluster, links, before, bound);
  }
  return result;
}

std::vector<Widened> widened_links(const Session& session, const topology::Topology& cluster,
                                   const topology::AllGatherBound& gather,
                                   const topology::AllGatherBound& scatter,
                                   const topology::AllReduceBound& reduce, bool in_network) {
  const ProgressBar bar("trying wider links", session.progress_elsewhere());
  const auto links_of = [](const topology::AllGatherBound& bound) {
    return bound.reason.empty() ? bound.cut.links : std::vector{bound.widest};
  };
  std::vector<Widened> all = {
      widening_of("all-gather", cluster, links_of(gather), gather.algbw,
                  [in_network](const topology::Topology& wider) {
                    return topology::allgather_optimum(wider, in_network).algbw;
                  }),
      widening_of("reduce-scatter", cluster, links_of(scatter), scatter.algbw,
                  [in_network](const topology::Topology& wider) {
                    return topology::reducescatter_optimum(wider, in_network).algbw;
                  })};
  if (reduce.widest) {
    all.push_back(
        widening_of("all-reduce", cluster,
                    reduce.cut.links.empty() ? std::vector{*reduce.widest} : reduce.cut.links,
                    reduce.algbw, [in_network](const topology::Topology& wider) {
                      return topology::joint_allreduce_bound(wider, in_network).algbw;
                    }));
  }
  return all;
}

/// Trees that reach a bound, or near it, so many per rank.
struct NamedForest {
  const char* collective;
  planner::Forest forest;
};

std::vector<NamedForest> forests_of(const Session& session, const topology::Topology& cluster,
                                    std::int64_t trees) {
  if (trees == 0) {
    return {};
  }
  ProgressBar bar("trees", session.progress_elsewhere());
  const planner::ForestOptions options{.most_trees_per_rank = trees, .good_enough = kWhole};
  std::vector<NamedForest> forests;
  for (const bool is_reversed : {false, true}) {
    const char* name = is_reversed ? "reduce-scatter" : "all-gather";
    bar.update(is_reversed ? 0.5 : 0, name);
    forests.push_back({name, planner::make_forest(cluster, options, is_reversed)});
  }
  return forests;
}

nlohmann::json json_of(const NamedForest& one) {
  return {{"collective", one.collective},
          {"trees_per_rank", one.forest.trees_per_rank},
          {"algbw_Bps", one.forest.algbw.bytes_per_second()},
          {"share_of_bound", one.forest.share_of_bound},
          {"depth", planner::depth_of(one.forest)}};
}

/// What binds, in words.
std::string reason_of(const topology::Topology& cluster, const topology::AllGatherBound& bound,
                      bool is_reversed) {
  return bound.reason.empty()
             ? "cut: " + topology::describe_with_links(cluster, bound.cut, is_reversed)
             : bound.reason;
}

/// As text, or null where it is not known.
nlohmann::json fraction(std::int64_t p, std::int64_t q) {
  return p > 0 ? nlohmann::json(fmt::format("{}/{}", p, q)) : nlohmann::json();
}

void print_exactly(const char* collective, const topology::AllGatherBound& bound) {
  if (bound.p == 0) {
    return;
  }
  // Rates without a common measure, as a third of 25 GB/s, take millions: no number to go by.
  constexpr std::int64_t kMostTreesTold = 100'000;
  const bool is_told = bound.trees_per_root > 0 && bound.trees_per_root <= kMostTreesTold;
  const std::string trees =
      !is_told ? "spanning trees"
               : fmt::format("{} from each rank", counted(bound.trees_per_root, "spanning tree"));
  const char* const reached = bound.may_be_out_of_reach
                                  ? "may reach it: a switch receives more than it can send, or less"
                              : is_told && bound.trees_per_root == 1 ? "reaches it"
                                                                     : "reach it";
  fmt::print("exact {} bound: {}/{} seconds for each byte of a rank's own; {} {}\n", collective,
             bound.p, bound.q, trees, reached);
}

std::string text_of(const topology::Topology& cluster, const Widened& one) {
  const auto gain = [&](Bandwidth algbw) {
    const double more = static_cast<double>(algbw.bytes_per_second()) /
                            static_cast<double>(one.before.bytes_per_second()) -
                        1;
    return fmt::format("{} instead of {} (+{})", to_string(algbw), to_string(one.before),
                       percent(more));
  };
  if (one.algbw > one.before) {
    return fmt::format("{}: doubling {} in both directions gives {}", one.collective, one.link,
                       gain(one.algbw));
  }
  const std::string alone =
      fmt::format("{}: doubling {} alone gains nothing", one.collective, one.link);
  if (!one.together) {
    return alone + ", as other cuts are as narrow";
  }
  return fmt::format("{}; doubling {} gives {}", alone, listed(cluster, one.together->links),
                     gain(one.together->algbw));
}

void run_bounds(Session& session, const ClusterOptions& options, bool in_network,
                std::int64_t trees) {
  const topology::Topology cluster = options.load(session);
  const auto [gather, scatter, reduce] = bounds_of(session, cluster, options.cluster, in_network);
  const std::vector<NamedForest> forests = forests_of(session, cluster, trees);
  const bool is_assumed = in_network && !topology::says_what_switches_do(cluster);
  const std::vector<Widened> widened =
      widened_links(session, cluster, gather, scatter, reduce, in_network);
  if (session.json) {
    nlohmann::json wider = nlohmann::json::object();
    for (const Widened& one : widened) {
      wider[one.collective] = {{"link", one.link}, {"algbw_Bps", one.algbw.bytes_per_second()}};
      if (one.together) {
        wider[one.collective]["together"] = {{"links", names_of(cluster, one.together->links)},
                                             {"algbw_Bps", one.together->algbw.bytes_per_second()}};
      }
    }
    nlohmann::json found = nlohmann::json::array();
    std::ranges::transform(forests, std::back_inserter(found),
                           [](const NamedForest& one) { return json_of(one); });
    session.print_json(
        {{"allgather_algbw_Bps", gather.algbw.bytes_per_second()},
         {"reducescatter_algbw_Bps", scatter.algbw.bytes_per_second()},
         {"allreduce_algbw_Bps", reduce.algbw.bytes_per_second()},
         {"allreduce_reason", reduce.reason},
         {"trees_per_root", gather.trees_per_root},
         {"allgather_may_be_out_of_reach", gather.may_be_out_of_reach},
         {"cut", names_of(cluster, gather.cut.links)},
         {"cut_around", topology::describe(cluster, gather.cut)},
         {"allgather_reason", reason_of(cluster, gather, false)},
         {"reducescatter_reason", reason_of(cluster, scatter, true)},
         {"cut_Bps", gather.cut.capacity.bytes_per_second()},
         {"allgather_algbw_wider_Bps", widened.front().algbw.bytes_per_second()},
         {"exact", fraction(gather.p, gather.q)},
         {"reducescatter_may_be_out_of_reach", scatter.may_be_out_of_reach},
         {"reducescatter_exact", fraction(scatter.p, scatter.q)},
         {"reducescatter_cut", names_of(cluster, scatter.cut.links)},
         {"reducescatter_cut_around", topology::describe(cluster, scatter.cut, true)},
         {"reducescatter_cut_Bps", scatter.cut.capacity.bytes_per_second()},
         {"allreduce_exact", fraction(reduce.p, reduce.q)},
         {"allreduce_may_be_out_of_reach", reduce.may_be_out_of_reach},
         {"allreduce_cut", names_of(cluster, reduce.cut.links)},
         {"wider", wider},
         {"forests", found},
         {"in_network", in_network},
         {"in_network_abilities", is_assumed ? "assumed" : "of the cluster"}});
    return;
  }
  Table table({{"collective"}, {"no schedule moves more than", Align::kRight}, {"because of"}});
  table.add_row({"all-gather", to_string(gather.algbw), reason_of(cluster, gather, false)});
  table.add_row({"reduce-scatter", to_string(scatter.algbw), reason_of(cluster, scatter, true)});
  table.add_row({"all-reduce", to_string(reduce.algbw), reduce.reason});
  fmt::print("{}\n", table.to_string());
  print_exactly("all-gather", gather);
  print_exactly("reduce-scatter", scatter);
  if (reduce.p > 0) {
    fmt::print("{} all-reduce bound: {}/{} seconds for each byte{}\n",
               reduce.may_be_out_of_reach ? "proved" : "exact", reduce.p, reduce.q,
               reduce.may_be_out_of_reach
                   ? "; a schedule may not reach it, as the search for the exact bound did not end"
                   : "");
  }
  for (const NamedForest& one : forests) {
    fmt::print("{} along {} from each rank: {}, {} of the bound, {} transfers deep\n",
               one.collective, counted(one.forest.trees_per_rank, "spanning tree"),
               to_string(one.forest.algbw), percent(one.forest.share_of_bound),
               planner::depth_of(one.forest));
  }
  if (is_assumed) {
    fmt::print(
        "the cluster file names no switch that reduces or multicasts: all are assumed to do "
        "both\n");
  }
  for (const Widened& one : widened) {
    fmt::print("{}\n", text_of(cluster, one));
  }
}

}  // namespace

void add_topology_command(CLI::App& app, Session& session) {
  CLI::App* group = app.add_subcommand("topology", "Look at a cluster: show, convert, bounds");
  group->require_subcommand(1);
  group->footer("Example: rackrail topology show a100-8x8");
  const auto options = std::make_shared<ClusterOptions>();

  const auto add = [&](const char* name, const char* help, const char* example) {
    CLI::App* command = group->add_subcommand(name, help);
    add_common_options(*command, session);
    command
        ->add_option("cluster,--cluster", options->cluster,
                     "Cluster file, or the name of a shipped cluster such as two-racks-40g")
        ->required();
    options->add_to(*command);
    command->footer(example);
    return command;
  };

  add("show", "Show ranks, links and tiers of a cluster",
      "Example: rackrail topology show two-racks-40g")
      ->callback([&session, options] {
        session.command = "topology show";
        run_show(session, *options);
      });

  const auto to = std::make_shared<std::string>("yaml");
  const auto output = std::make_shared<std::string>();
  CLI::App* convert =
      add("convert", "Write a cluster as a flat YAML file, an edge list or a drawing",
          "Example: rackrail topology convert ndv4-topo.xml --overlay "
          "ndv4-8-nodes.yaml -o cluster.yaml");
  convert->add_option("--to", *to, "Format to write: yaml, edge-list or graphviz")
      ->check(CLI::IsMember({"yaml", "edge-list", "graphviz"}))
      ->capture_default_str();
  convert->add_option("-o,--output", *output, "File to write. Default: standard output");
  convert->callback([&session, options, to, output] {
    session.command = "topology convert";
    run_convert(session, *options, *to, *output);
  });

  const auto in_network = std::make_shared<bool>(false);
  CLI::App* bounds = add(
      "bounds", "Show the lower bounds that no schedule can beat, and the links that cause them",
      "Example: rackrail topology bounds fat-tree-128-2to1");
  bounds->add_flag("--in-network", *in_network,
                   "Let switches reduce and multicast, where they can");
  const auto trees = std::make_shared<std::int64_t>(0);
  bounds
      ->add_option("--trees-per-rank", *trees,
                   "Also look for trees that reach the bound, at most this many per rank, e.g. 4")
      ->check(CLI::Range(1, 1000));
  bounds->callback([&session, options, in_network, trees] {
    session.command = "topology bounds";
    run_bounds(session, *options, *in_network, *trees);
  });
}

}  // namespace rackrail::cli
