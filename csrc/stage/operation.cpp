#include "stage/operation.h"

#include <stdexcept>

namespace helm {

Area Value::area() const {
  if (name == "hidden") return Area::hidden;
  if (name == "normed" || name == "attended") return Area::wide;
  if (name == "logits") return Area::logits;
  if (name == "scores") return Area::scores;
  return Area::inner;
}

void refuse(const std::string& what) { throw std::invalid_argument("stage: " + what); }

void expect(bool condition, const std::string& what) {
  if (!condition) refuse(what);
}

void check_matrix(const std::string& name, const Matrix& m, size_t rows, size_t columns) {
  if (m.rows != rows || m.columns != columns)
    refuse(name + " is (" + std::to_string(m.rows) + ", " + std::to_string(m.columns) + "), expected (" +
           std::to_string(rows) + ", " + std::to_string(columns) + ")");
}

void check_part(const std::string& name, const std::optional<Matrix>& m, size_t rows, size_t columns) {
  if (!m) return;
  if (m->columns != columns || m->first > rows || m->rows > rows - m->first)
    refuse(name + " is rows [" + std::to_string(m->first) + ", " + std::to_string(m->first + m->rows) + ") of " +
           std::to_string(m->columns) + " columns, expected a part of (" + std::to_string(rows) + ", " +
           std::to_string(columns) + ")");
  expect(m->first % kPanel == 0, name + " begins with row " + std::to_string(m->first) + ", not a multiple of 16");
}

}  // namespace helm
