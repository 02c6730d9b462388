# Enqueues the vectors of `enqueue_vectors.json` with the gem pg.
#
# Usage: enqueue_vectors.rb VECTORS DATABASE
# Prints a JSON list: for each job, whether it was accepted.

require "json"
require "pg"

# Returns a value whose text is written as `{"repeat": text, "times": n}` or `{"concat": [..]}`.
def long(value)
  return value unless value.is_a?(Hash)
  return value["concat"].map { |part| long(part) }.join if value.key?("concat")

  value["repeat"] * value["times"]
end

def accepts?(connection, job)
  columns = job.keys.join(", ")
  places = (1..job.size).map { |place| "$#{place}" }.join(", ")
  values = job.values.map { |value| long(value) }
  connection.exec_params("INSERT INTO windlass_enqueue (#{columns}) VALUES (#{places})", values)
  true
rescue PG::Error => error
  code = error.result&.error_field(PG::Result::PG_DIAG_SQLSTATE).to_s
  raise unless code.start_with?("22") || error.message.include?("cannot enqueue")

  false
end

vectors, database = ARGV
jobs = JSON.parse(File.read(vectors, encoding: "UTF-8")).flat_map { |vector| vector["jobs"] }
connection = PG.connect(database)
puts JSON.generate(jobs.map { |job| accepts?(connection, job) })
