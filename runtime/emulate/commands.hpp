// The lines that `ip -batch` and `tc -batch` are given: text out of a plan, no side effect.
//
// Shaping is HTB with one class per interface, and a FIFO of bytes below it. FIFOs are shallow: in
// deep ones the acknowledgements of the opposite direction wait for so long that it starves.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "base/units.hpp"
#include "runtime/emulate/network_plan.hpp"

namespace rackrail::runtime::emulate {

/// Bytes of a packet without the Ethernet header, with which HTB counts.
inline constexpr int kMtu = 9000;
/// Share of a shaped rate that TCP's payload gets: 9000 − 20 (IPv4) − 20 (TCP) − 12 (time stamps)
/// of 9000 + 14 (Ethernet) bytes.
inline constexpr double kPayloadShare = 8948.0 / 9014.0;

/// 6 ms at the rate, but 500 kB at least and 750 kB at most: what was found to neither starve the
/// opposite direction nor drop below the rate between 250 Mbit/s and 1 Gbit/s.
Bytes queue_limit(Bandwidth rate);
/// What HTB may send at once: 0.5 ms at the rate, and one packet of segmentation offload at least.
Bytes burst_size(Bandwidth rate);

/// What a connection of a host with a link of this rate may hold back, 128 KiB at least: 32 ms at
/// the rate up to 250 Mbit/s, and 1 ms at faster ones. With more, what was sent first fills the
/// queues, and what is urgent stands behind it. With less, one connection alone cannot fill a link
/// that carries as much the other way: it holds two of the packets that segmentation offload makes,
/// and its acknowledgements stand behind those of the other direction (results/rails.md).
Bytes send_buffer(Bandwidth rate);

/// "10500kbit"-like text that tc takes, exact to a bit per second.
std::string tc_rate(Bandwidth rate);

using StationPath = std::function<std::string(std::size_t station)>;

/// Makes the veth pairs of all links, and of all hosts to the management network, from anywhere.
/// `path` is the namespace of a station, `management` that of the management network.
std::string link_commands(const NetworkPlan& plan, const StationPath& path,
                          const std::string& management);
/// What is done inside a station's namespace: bridge, addresses, everything up.
std::string station_commands(const NetworkPlan& plan, std::size_t station);
std::string management_commands(const NetworkPlan& plan);
/// The qdiscs of a station's shaped interfaces, for tc.
std::string shaping_commands(const NetworkPlan& plan, std::size_t station);

}  // namespace rackrail::runtime::emulate
