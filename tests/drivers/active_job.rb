# Performs jobs as a worker of Solid Queue does: reads an envelope of each line of standard input, and prints what
# `perform` was given.
require "active_job"
require "global_id"
require "json"

ActiveJob::Base.logger = nil
GlobalID.app = "app"

class User
  include GlobalID::Identification
  attr_reader :id

  def initialize(id) = @id = id

  def self.find(id) = new(id)
end
Mailer = Module.new

module Reports
  class BuildJob < ActiveJob::Base
    def perform(*positional, **keywords)
      keywords = keywords.sort.map { |name, value| "#{name}: #{shown(value)}" }
      puts "#{queue_name} #{[*positional.map { |value| shown(value) }, *keywords].join(", ")}"
    end

    private

    def shown(value)
      case value
      when User then "User #{value.id}"
      when Array then "[#{value.map { |item| shown(item) }.join(", ")}]"
      when Time then value.utc.iso8601(1)
      when ActiveSupport::Duration then "#{value.class} #{value.to_i}"
      when Hash then "{#{value.map { |key, item| "#{key.inspect}: #{shown(item)}" }.join(", ")}}"
      when Date then value.iso8601
      else value.inspect
      end
    end
  end
end

$stdin.each_line { |line| ActiveJob::Base.execute(JSON.parse(line)) }
