#include "tests/fuzz/clusters.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {
      "name: small\nlink_classes: { l: { link: tcp, bandwidth: 10 Gbit/s } }\n"
      "device_classes: { A100: { memory: 40 GB } }\n"
      "node_types: { n: { device_class: A100, gpus: 2, nvlink: { bandwidth: 1 GB/s, latency: 1 us "
      "},"
      " pcie: { bandwidth: 1 GB/s, latency: 1 us, gpus_per_switch: 2 },"
      " sockets: { count: 2, bandwidth: 1 GB/s, latency: 1 us },"
      " nics: { count: 2, link: l, devices: [a, b] } } }\n"
      "racks: { count: 2, hosts: 2 }\n"
      "network: { wiring: fat-tree, pod: { racks: 1 }, spine: { count: 1, link: rdma },"
      " core: { count: 2, cables: 2, link: rdma } }\n",
      "name: planes\ndevice_classes: { X: { matrix_tflops: 100, memory_bandwidth: 2 TB/s } }\n"
      "node_types: { n: { device_class: X, gpus: 4, nvlink: { bandwidth: 1 GB/s, latency: 1 us, "
      "islands: 2 }, pcie: { link: rdma }, nics: { count: 2, ports: 2, link: rdma } },"
      " m: { gpus: 2, nvlink: { bandwidth: 1 GB/s, latency: 1 us, hosts: 2 }, pcie: { link: rdma },"
      " nics: { link: rdma } } }\n"
      "racks: [{ hosts: 2, type: n }, { hosts: 2, type: m }]\n"
      "network: { wiring: rail-optimised, planes: 2, spine: { count: 2, link: rdma } }\n",
      "nodes: [{ name: a, kind: gpu, rank: 0, processor: 2, memory: 1 GB }, { name: b, kind: gpu, "
      "rank: 1 }]\n"
      "links: [{ from: a, to: b, bandwidth: 1 GB/s, latency: 1 us, duplex: true },"
      " { from: a, to: b, bandwidth: 1 GB/s, latency: 1 us, kind: shared }]\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rackrail::fuzz::read_as("yaml", rackrail::fuzz::text_of(data, size));
  return 0;
}
