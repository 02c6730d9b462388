# Completes the tables of a database by the gem for Rails.
#
# Usage: gem_migrate.rb DATABASE [rails]
# With `rails`, a migration of Rails does it, in the transaction that Rails gives it. Prints what was missing, one line each.

require_relative "../../clients/ruby/test/database"

class AddWindlass < ActiveRecord::Migration[6.1]
  def up = Windlass::Schema.migrate(connection)
end

connection = connect(ARGV.fetch(0))
if ARGV[1] == "rails"
  puts(connection.transaction { AddWindlass.new.exec_migration(connection, :up) })
else
  puts Windlass::Schema.migrate
end
