// Whether two transfer graphs are the same.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "plan/transfer_graph.hpp"

namespace rackrail::test {

/// Transfers, what they wait for, routes and weights; codecs may be numbered otherwise.
inline void check_same_graph(const plan::TransferGraph& a, const plan::TransferGraph& b) {
  REQUIRE(a.transfers().size() == b.transfers().size());
  CHECK(a.name() == b.name());
  CHECK(a.collective() == b.collective());
  CHECK(std::vector(a.chunk_weights().begin(), a.chunk_weights().end()) ==
        std::vector(b.chunk_weights().begin(), b.chunk_weights().end()));
  CHECK(std::vector(a.rates().begin(), a.rates().end()) ==
        std::vector(b.rates().begin(), b.rates().end()));
  CHECK(std::vector(a.routes().begin(), a.routes().end()) ==
        std::vector(b.routes().begin(), b.routes().end()));
  for (std::size_t i = 0; i < a.transfers().size(); ++i) {
    const plan::Transfer& x = a.transfers()[i];
    const plan::Transfer& y = b.transfers()[i];
    const auto waits_x = a.dependencies(TransferId(i));
    const auto waits_y = b.dependencies(TransferId(i));
    const bool is_equal =
        x.src == y.src && x.dst == y.dst && x.chunk_begin == y.chunk_begin &&
        x.chunk_count == y.chunk_count && x.op == y.op && x.route == y.route &&
        a.codecs()[x.codec] == b.codecs()[y.codec] &&
        std::equal(waits_x.begin(), waits_x.end(), waits_y.begin(), waits_y.end());
    if (!is_equal) {
      FAIL("transfer " + std::to_string(i) + " differs");
    }
  }
}

}  // namespace rackrail::test
