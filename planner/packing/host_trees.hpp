// Trees for all-reduce from those between hosts: shallow ones, where hosts are heterogeneous.
//
// Model. Each host becomes one vertex, parallel links become one, and trees of the joint optimum
// are found there (joint_forest.hpp), few of them: which host sums up what another one has, and
// which of its links, or racks', that crosses. Each such tree then becomes some of ranks. An arc
// between hosts leads over the link of one rank of each, another one in each copy of the tree, so
// that all are used equally. Inside a host all ranks send to the one that sends on, and in the
// broadcast the one that it enters by sends to all others. So what is passed on takes one or two
// arcs in a host, where trees of ranks lead through chains of them, and pipelines fill sooner.
// Links inside hosts do not count in the search, and may bind; the rate says so.
#pragma once

#include <vector>

#include "planner/packing/joint_forest.hpp"

namespace rackrail::planner {

/// Takes some joint forests of as many ranks as there are hosts, and O(trees · ranks · hosts).
/// None where no host has several ranks, there are fewer than three hosts or more than 16, ranks
/// more than 64, or a rank does not reach all others of its host past no other.
std::vector<AllReduceForests> host_forests(const topology::Topology& topology);

}  // namespace rackrail::planner
