"""The sentences of the long report. Fields in braces are filled with the figures of a district."""

# ruff: noqa: E501 (a sentence stays on one line)

from __future__ import annotations

from _content import Block, Bullets, Heading, Para

DISTRICTS = ("North Harbour", "Mill Valley", "Old Town", "East Hills", "River Bend", "Green Park", "Stone Bridge", "West Fields", "Lake Shore")  # fmt: skip
MATERIALS = ("Cast iron", "Ductile iron", "PVC", "Polyethylene")
ASSET_KINDS = ("Pumping station", "Service reservoir", "Pressure valve", "Transfer main", "Treatment filter", "Borehole", "Metering chamber")  # fmt: skip

FRONT: tuple[Block, ...] = (
    Heading(2, "1 Summary"),
    Para(
        "This report describes the condition of the Example Water Network at the end of 2026 and sets out what should be invested in the coming year. It is written for the board and for the managers of the nine supply districts. All places and figures are invented; the document exists to test software that reads documents."
    ),
    Para(
        "The network is in fair condition. Losses fell in every district over the year, and no district had to restrict supply. The number of bursts is still high where cast iron mains are older than sixty years, and these mains take the largest share of the proposed budget."
    ),
    Para("Three decisions are asked of the board:"),
    Bullets(
        (
            "approve the renewal programme for cast iron mains in all nine districts;",
            "extend the night flow measurements to every metering zone by the end of the year;",
            "replace the pump controls that no longer receive spare parts from their maker.",
        ),
        ordered=True,
    ),
    Heading(3, "1.1 What Changed since Last Year"),
    Para(
        "The figures of this year rest on more measurements than before. The number of permanent flow meters grew by a quarter, and two thirds of all service connections now report once a day. Losses are therefore no longer an estimate from annual balances but the sum of night flows over all zones. Earlier years have been recalculated where the data allowed it."
    ),
    Para(
        "The definition of a burst has been narrowed. A leak that is found by a survey and repaired on a planned date is no longer counted. Only failures that required work within twenty-four hours appear in the tables. This explains about one tenth of the decrease against the previous report."
    ),
    Heading(2, "2 Basis of the Report"),
    Heading(3, "2.1 Data"),
    Para(
        "The data come from four sources: the asset register, the work orders of the repair crews, the flow and pressure meters, and the energy bills of the pumping stations. Each district checked its own figures in October. Differences between the sources were resolved in favour of the measurement with the smaller known error."
    ),
    Para(
        "Lengths are given in kilometres of mains without service connections. Supply is the water that enters a district, measured at its inlets. Losses are the share of supply that does not reach a customer meter. Energy is the electricity used for pumping, divided by supply."
    ),
    Heading(3, "2.2 Method"),
    Para(
        "The need for renewal was ranked with a simple score. It multiplies the burst rate of a main by the number of customers who depend on it and by the time a repair takes. Mains with a high score are inspected before a decision is made. The score does not replace the judgement of the district engineers, but it makes the order of work easier to explain."
    ),
    Bullets(
        (
            "The burst rate is a mean over five years.",
            "The number of customers follows from the hydraulic model.",
            "The repair time is taken from the work orders of the same street.",
        )
    ),
)

SECTIONS: tuple[tuple[str, tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]], ...] = (
    (
        "Condition of the Network",
        (
            "The district {name} has {km} km of mains and serves {customers} customers.",
            "Its network was built in three stages, and the material of the mains still shows where each stage ended.",
            "The inspection of this year covered the valves and hydrants of the inner zones first.",
            "Where records and findings differed, the register was corrected on the same day.",
            "No main had to be taken out of service for longer than two days.",
            "The crews found the general condition slightly better than the age of the mains would suggest.",
            "Access to valves has improved because covers that had been paved over were raised.",
        ),
        (
            (
                "Bursts and Repairs",
                (
                    "The crews repaired {bursts} bursts in {name}, which is {rate} for every 100 km of mains.",
                    "The weakest group is {worst} with {worst_bursts} bursts on {worst_km} km.",
                    "Most bursts occurred in the two cold weeks of February, when the ground froze below the usual depth.",
                    "The median time from the first call to the restored supply was a little over five hours.",
                    "In a third of all cases a valve that did not close added to the repair time.",
                    "Repairs at night were avoided wherever a temporary supply could be set up.",
                    "Each repair is now documented with a photograph of the broken pipe and a sample of the soil.",
                    "The samples are kept for one year and then discarded.",
                    "A main that bursts for the third time within two years is entered in the renewal list without further tests.",
                ),
            ),
            (
                "Age and Material",
                (
                    "The oldest group of mains in {name} has a mean age of {oldest} years.",
                    "Age alone says little about the risk of failure, as several very old mains have never been repaired.",
                    "Soil with a high content of clay does more harm than traffic, according to the samples.",
                    "Plastic mains fail mostly at joints that were laid before the present welding rules.",
                    "The lining of ductile iron mains is intact at all points that were opened.",
                    "For the next report the wall thickness will be measured at twenty points without digging.",
                    "The results will show whether the usual life of eighty years is too short or too long.",
                    "Until then the renewal plan keeps the present lengths for each material.",
                ),
            ),
        ),
    ),
    (
        "Supply and Demand",
        (
            "A total of {total} million cubic metres entered {name} during the year.",
            "The highest demand fell in {peak} with {peak_supply} million cubic metres.",
            "This corresponds to about {litres} litres per customer and day, including losses and public use.",
            "Pressure complaints were rare and came from the same few streets as in earlier years.",
            "The reserve of the service reservoirs was sufficient on every day of the year.",
            "Two large customers have announced that they will recycle part of their cooling water.",
        ),
        (
            (
                "Seasonal Pattern",
                (
                    "Demand in {name} follows the weather closely between May and September.",
                    "On warm evenings the flow at the inlet doubles within two hours, mostly because of gardens.",
                    "The peak hour has moved from seven to nine in the evening over the last ten years.",
                    "A model with temperature and day of the week explains nine tenths of the daily variation.",
                    "Public holidays are visible as a flat morning and a late peak.",
                    "The forecast for the coming summer assumes no change in behaviour.",
                    "It includes a margin of six percent for a long period without rain.",
                    "If the margin is used up, watering of public lawns will be stopped first.",
                ),
            ),
            (
                "Pressure and Quality",
                (
                    "Pressure in {name} is held between four and six bar at the inlets.",
                    "Sensors at twelve points report every minute and raise an alarm when the pressure drops quickly.",
                    "All samples met the legal limits for drinking water.",
                    "Brown water was reported eleven times, always after valves had been moved.",
                    "The flushing plan was changed so that the flow direction stays the same from start to end.",
                    "Chlorine was dosed only during the work on the transfer main.",
                    "Lead pipes are no longer in use in any house connection that belongs to the network.",
                    "Owners of old houses were reminded to have their own pipes tested.",
                ),
            ),
        ),
    ),
    (
        "Water Losses",
        (
            "Losses in {name} were {loss} percent of supply on average.",
            "They fell from {loss_first} percent in the first quarter to {loss_last} percent in the last.",
            "The decrease is the result of many small repairs and not of a single large one.",
            "About one fifth of the remaining losses is water for flushing and fire drills, which is not metered.",
            "The target for the coming year is one percentage point lower.",
            "A further decrease will be slower, because the leaks that are easy to find have been repaired.",
        ),
        (
            (
                "Night Flow",
                (
                    "The flow between two and four in the morning is the best single sign of leakage in {name}.",
                    "Each metering zone has a value below which no search is started.",
                    "Searches were started on forty-one nights and found a leak in nearly all cases.",
                    "The average leak had been running for nine days before it was noticed.",
                    "Zones with many night workers need a higher limit and a longer series of data.",
                    "The limits will be reviewed once a year.",
                    "Listening devices on hydrants helped to find leaks that do not reach the surface.",
                    "They are moved to another zone every four weeks.",
                ),
            ),
        ),
    ),
    (
        "Energy",
        (
            "Pumping in {name} used {energy} kWh for every cubic metre supplied.",
            "The value depends on the height of the reservoirs and can only be compared with the same district in other years.",
            "Pumps now fill the reservoirs at noon, when power from the solar roofs is available.",
            "One pump was found to run far from its best point and will get a smaller wheel.",
            "The contract for electricity was renewed for two years at a fixed price.",
            "Heat from the motors warms the control building in winter.",
        ),
        (
            (
                "Pump Controls",
                (
                    "The controls of the main station in {name} are twenty-two years old.",
                    "Spare parts are taken from a station that was closed, and this stock will last for about three years.",
                    "A replacement can be installed while the station is running, one pump at a time.",
                    "The new controls will use the same signals, so that the control room does not have to change.",
                    "A test at a small station showed savings of four percent without any change to the pumps.",
                    "Staff will be trained before the first unit is exchanged.",
                    "The old cabinets contain no harmful substances and can be scrapped.",
                    "A spare unit will be kept in the central store for all districts.",
                ),
            ),
        ),
    ),
    (
        "Customer Service",
        (
            "The service desk for {name} received {calls} calls during the year, which is {calls_rate} for every thousand customers.",
            "Three out of four callers wanted to report a leak in the street or asked about a bill.",
            "The waiting time was below two minutes on all but six days.",
            "Most leaks reported by customers were already known from the night flow of the same week.",
            "A short message is now sent to all customers of a street before work begins.",
            "The share of repeat calls about the same matter fell to one in twelve.",
        ),
        (
            (
                "Planned Interruptions",
                (
                    "Supply in {name} was interrupted on purpose {planned} times, and every interruption was announced two days ahead.",
                    "Nearly all of them ended before the announced hour.",
                    "Where a school or a clinic was affected, the work was moved to the holidays or to a weekend.",
                    "Bottled water was offered to customers who cannot leave their homes.",
                    "The crews now close valves slowly, over five minutes, to protect old service pipes.",
                    "After each interruption the mains were flushed until the water at the last hydrant was clear.",
                    "Two interruptions were cancelled because a valve could not be found under new paving.",
                    "The positions of such valves are being measured again with satellite receivers.",
                ),
            ),
            (
                "Meters and Bills",
                (
                    "In {name} {meters} customer meters were replaced because their legal period had ended.",
                    "The new meters send their reading once a day by radio and run on one battery for twelve years.",
                    "Bills are based on readings and no longer on estimates wherever the new meters are installed.",
                    "A sudden rise of consumption leads to a letter to the customer within a week.",
                    "These letters led to several hundred repairs of dripping taps and cisterns.",
                    "Customers may look at their daily values on a protected page.",
                    "Fewer than one in a thousand customers objected to the radio signal.",
                    "For them a meter without radio is read once a year by a visit.",
                ),
            ),
        ),
    ),
    (
        "Staff and Safety",
        (
            "The crews of {name} have {staff} members, two of whom are in training.",
            "Every crew works with the same set of tools, so that members can stand in for each other.",
            "The stand-by service was called out on {nights} nights.",
            "The number of sick days was slightly below the average of all districts.",
            "A new vehicle with a lifting arm has made the handling of heavy valves safer.",
        ),
        (
            (
                "Accidents and Near Misses",
                (
                    "No serious accident happened in {name} during the year.",
                    "Eleven near misses were written down, more than in earlier years, which we take as a sign of trust.",
                    "Four of them had to do with traffic next to a trench.",
                    "Barriers with lights are now set up before the first tool leaves the vehicle.",
                    "Gas was measured before every entry into a chamber, without exception.",
                    "A trench that is deeper than a man's waist is always supported, also for a short job.",
                    "The results are discussed with all crews once a month.",
                ),
            ),
        ),
    ),
    (
        "Proposed Investment",
        (
            "For {name} we propose to invest {budget} thousand euros in the coming year.",
            "The largest item is the renewal of mains with {mains} thousand euros.",
            "Work will be combined with road works of the town wherever the dates allow it.",
            "Prices are based on the tenders of the last two years and include a reserve of five percent.",
            "If the budget is reduced, the items further down in the list should be delayed first.",
            "The amounts do not include the hours of our own crews. They are divided as follows:",
        ),
        (),
    ),
)

CLOSING: tuple[tuple[Block, ...], tuple[Block, ...]] = (
    (
        Para(
            "The register lists all assets with a replacement value above fifteen thousand euros. The condition is the result of the last inspection, from A for good to D for poor. Assets in condition D are inspected twice a year until they are replaced. The table continues over several pages."
        ),
    ),
    (
        Para(
            "The network has gained some time. If the renewal programme is carried out as proposed, the share of cast iron will fall below one tenth within twelve years, and the number of bursts should fall by a third. The night flow measurements will show early whether this is the case."
        ),
        Heading(3, "13.1 Risks"),
        Para(
            "Three risks could change the picture. A dry summer would raise demand beyond anything seen in the last ten years. A rise in the price of steel and plastic would make the programme slower. And a shortage of skilled workers is already visible in the tenders, where fewer firms take part than before."
        ),
        Heading(3, "13.2 Next Steps"),
        Bullets(
            (
                "The board decides on the budget in January.",
                "The districts publish their tenders in March.",
                "The crews start with the mains of the highest score in April.",
                "The next report appears in December of the following year.",
            ),
            ordered=True,
        ),
        Para(
            "Questions about this report can be sent to the planning group of the Example Water Network. The data behind all tables are kept for ten years and are open to the public."
        ),
    ),
)
