// `nvidia-smi topo -m` → Topology.
#include "topology/readers/topo_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "topology/readers/formats.hpp"
#include "topology/readers/gpu_guess.hpp"
#include "topology/readers/nccl_cluster.hpp"
#include "topology/readers/nccl_rates.hpp"

namespace rackrail::topology {
namespace {

/// By the number of links, which generations of NVLink and the boards that they are on limit:
/// V100 has 6, A100 12 (A800 8), H100 18; boards of 4 join each pair of A100 by 4 and of H100 by 6;
/// NVLink bridges of workstation cards have 4.
GpuGuess topo_guess(const TopoMatrix& matrix) {
  GpuGuess guess;
  guess.named = matrix.gpu_model;
  const auto gpus = std::count_if(matrix.devices.begin(), matrix.devices.end(),
                                  [](const TopoDevice& d) { return d.is_gpu; });
  int links = 0;
  std::ptrdiff_t pairs = 0;
  for (const TopoCell& cell : matrix.cells) {
    links = std::max(links, cell.links);
    pairs += cell.relation == TopoRelation::kNvlink ? 1 : 0;
  }
  if (links == 0) return guess;
  const bool is_board_of_4 = gpus == 4 && pairs == gpus * (gpus - 1);
  guess.evidence = fmt::format("NV{}", links);
  if (links > 12) {
    guess.likeliest = "H100";
  } else if (links > 6) {
    guess.likeliest = "A100";
  } else if (links == 6 && is_board_of_4) {
    guess.likeliest = "H100";
  } else if (links == 4) {
    guess.likeliest = is_board_of_4 ? "A100" : "A6000";
  } else {
    guess.likeliest = "V100";
  }
  return guess;
}

void note_nics(const TopoMatrix& matrix, const Overlay& overlay, std::vector<std::string>& notes) {
  const auto gpus = std::count_if(matrix.devices.begin(), matrix.devices.end(),
                                  [](const TopoDevice& d) { return d.is_gpu; });
  const auto nics = static_cast<std::ptrdiff_t>(matrix.devices.size()) - gpus;
  if (nics <= gpus || !overlay.names_hosts || !overlay.nics.empty()) return;
  notes.push_back(
      fmt::format("all {} NICs of the file carry traffic; an overlay's 'nics' may list "
                  "those that do",
                  nics));
}

class TopoMatrixReader : public Reader {
 public:
  std::string_view format() const override { return "nvidia-topo"; }

  bool accepts(const std::filesystem::path& /*path*/, std::string_view content) const override {
    return has_topo_matrix(content);
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    const Overlay overlay = overlay_of(options);
    NcclFile file;
    const TopoMatrix matrix = parse_topo_matrix(path.string(), content);
    file.notes = matrix.notes;
    NcclMachine machine = machine_of(matrix, path.string(), file.notes);
    machine.socket_rate = default_socket_rate();
    if (machine.cpus.size() > 1) {
      file.notes.emplace_back(
          "the file does not name a known CPU: 10 GB/s assumed between sockets");
    }
    assume_gpus(machine, overlay, topo_guess(matrix), file.notes);
    note_nics(matrix, overlay, file.notes);
    file.machines.push_back(std::move(machine));
    return cluster_of_machines(path, std::move(file), options);
  }
};

}  // namespace

std::unique_ptr<Reader> make_topo_matrix_reader() { return std::make_unique<TopoMatrixReader>(); }

}  // namespace rackrail::topology
