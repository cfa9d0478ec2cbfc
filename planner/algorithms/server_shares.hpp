// How much of a buffer each rank serves where the ranks themselves are the parameter server.
//
// Rank s serves the share w_s: all others send it their parts of that and get the sums back, so
// routes to and from server s cross links (planner/algorithms/part_loads.hpp, which finds the best
// shares). On a switch with n equal links these are 1/n each; where links differ, T·b_r = 1 + (n −
// 2)·w_r: a rank takes in what it serves and the sums of all others, so one with a slow link serves
// less than in proportion to its rate, or nothing. (BytePS, OSDI 2020, has the closed form for
// servers of their own and equal links.)
#pragma once

#include <cstdint>
#include <vector>

#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Up to so many ranks the linear program is solved.
inline constexpr std::size_t kMostServersSolved = 256;

/// The shares in proportion, as weights of chunks: whole numbers from 1 on, within a thousandth of
/// the least T; all 1 where equal shares are the optimum. Of several optima one whose largest share
/// is the smallest. Beyond kMostServersSolved, and in a build without a solver, in proportion to
/// the rates of the ranks' own links. O(ranks² · route length) and the program.
std::vector<std::uint32_t> server_shares(const topology::Topology& topology,
                                         topology::Router& router);

/// T of such weights, in seconds for a byte of the buffer.
double exchange_time(const topology::Topology& topology, topology::Router& router,
                     const std::vector<std::uint32_t>& weights);

}  // namespace rackrail::planner
